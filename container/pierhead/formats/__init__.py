"""What requests and answers look like on the wire, for handler workers and embedded model server alike."""
