"""Turn a WAV file into the notes that are played in it.

The model hears windows of two seconds at 22,050 Hz and tells, for each frame of 256 samples and each of the
88 keys of a piano, how likely a note sounds (`note`) and begins (`onset`). `input_handler` cuts the audio
into windows that overlap; `output_handler` joins the windows' inner frames again and reads the notes off.
Nothing is kept between the two, so requests may be served side by side.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import soxr

Floats = npt.NDArray[np.float32]

MEDIA_TYPES = ("audio/wav", "audio/x-wav", "audio/wave")

SAMPLE_RATE = 22_050  # of the audio that the model hears, Hz
HOP = 256  # samples from one frame of the output to the next
WINDOW = 43_844  # samples that go into the model at once
EDGE_FRAMES = 15  # at either end of a window the model lacks context: these frames are dropped
EDGE = EDGE_FRAMES * HOP
STRIDE = WINDOW - 2 * EDGE  # samples from one window to the next

LOWEST_PITCH = 21  # MIDI number of the first key, A0
ONSET_THRESHOLD = 0.5
NOTE_THRESHOLD = 0.3
SHORTEST_NOTE = 11  # frames, 128 ms
ONSET_REACH = 5  # frames on either side of an onset among which it is the strongest
ATTACK = 4  # frames by which `note` may rise later than `onset`

PCM, EXTENSIBLE = 0x0001, 0xFFFE  # WAV format tags
SAMPLE_BITS = (8, 16, 24, 32)
# Resampling from a made-up rate of 1 Hz would turn a small file into gigabytes.
LOWEST_RATE, HIGHEST_RATE = 4_000, 384_000


class Context(Protocol):
    """What these hooks read of the request."""

    request_content_type: str | None


class Response(Protocol):
    """What these hooks read of the model server's response."""

    status_code: int
    text: str
    outputs: Mapping[str, Floats]


@dataclass(frozen=True)
class Format:
    """How a WAV file's samples are stored."""

    channels: int
    rate: int
    bits: int


@dataclass(frozen=True)
class Note:
    """One note: MIDI number of the key, begin and end in seconds, mean strength from 0 to 1."""

    pitch_midi: int
    start_seconds: float
    end_seconds: float
    amplitude: float


def input_handler(data: BinaryIO, context: Context) -> dict[str, Floats]:
    """Return the model's input, float32 [windows, 43844, 1], for a WAV file."""
    media_type = (context.request_content_type or "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise ValueError(f"Content-Type {media_type!r} is not served here: send a WAV file as audio/wav")
    return {"input_2": cut_windows(read_wav(data.read()))}


def output_handler(response: Response, context: Context) -> tuple[str, str]:  # noqa: ARG001 - the hook's form
    """Return the notes as JSON, in the order in which they begin."""
    if response.status_code != 200:
        raise ValueError(response.text)
    note, onset = (join_windows(response.outputs[name]) for name in ("note", "onset"))
    notes = find_notes(note, onset, frame_times(len(response.outputs["note"])))
    return json.dumps({"notes": [asdict(found) for found in notes]}), "application/json"


def read_wav(body: bytes) -> Floats:
    """Return a WAV file's audio as the model wants it: mono, 22,050 Hz, float32 [samples] from -1 to 1."""
    chunks = split_chunks(body)
    if b"fmt " not in chunks or b"data" not in chunks:
        raise ValueError("the WAV file is damaged: it lacks its format or its data chunk")
    stored = read_format(chunks[b"fmt "])
    mono = decode_pcm(chunks[b"data"], stored)
    if not mono.size:
        raise ValueError("the WAV file holds no audio: its data chunk is empty")
    return mono if stored.rate == SAMPLE_RATE else soxr.resample(mono, stored.rate, SAMPLE_RATE)


def split_chunks(body: bytes) -> dict[bytes, bytes]:
    """Return the first chunk of each name in a WAV file.

    The standard library's `wave` is not used because before Python 3.12 it refuses the extensible format, in
    which many programs write 24-bit audio.
    """
    if not body:
        raise ValueError("the request's body is empty: send a WAV file")
    if body[:4] != b"RIFF" or body[8:12] != b"WAVE":
        raise ValueError("the request's body is not a WAV file: it does not begin with a RIFF/WAVE header")
    chunks: dict[bytes, bytes] = {}
    position = 12
    while position + 8 <= len(body):
        name, size = struct.unpack_from("<4sI", body, position)
        chunks.setdefault(name, body[position + 8 : position + 8 + size])
        position += 8 + size + size % 2  # an odd chunk is followed by a byte of padding
    return chunks


def read_format(chunk: bytes) -> Format:
    """Return what a WAV file's format chunk says, or refuse what cannot be decoded here."""
    if len(chunk) < 16:
        raise ValueError("the WAV file is damaged: its format chunk is too short")
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if tag == EXTENSIBLE and len(chunk) >= 26:
        (tag,) = struct.unpack_from("<H", chunk, 24)
    if tag != PCM or bits not in SAMPLE_BITS:
        raise ValueError(f"WAV format {tag} with {bits} bits is not served: send 8, 16, 24 or 32-bit PCM")
    if not channels or not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(
            f"the WAV file claims {channels} channels at {rate} Hz: "
            f"send one or more, at {LOWEST_RATE} to {HIGHEST_RATE} Hz"
        )
    return Format(channels=channels, rate=rate, bits=bits)


def decode_pcm(data: bytes, stored: Format) -> Floats:
    """Return little-endian PCM as float32 [samples] from -1 to 1, the mean of its channels."""
    width = stored.bits // 8
    whole = len(data) - len(data) % (width * stored.channels)
    raw = np.frombuffer(data[:whole], np.uint8).reshape(-1, width)
    # Every width becomes 32 bits by filling in zeros below, which leaves one scale for all.
    wide = np.zeros((len(raw), 4), np.uint8)
    # 8-bit samples alone are unsigned, with 128 for silence.
    wide[:, 4 - width :] = raw ^ 0x80 if width == 1 else raw
    samples = wide.view("<i4").reshape(-1, stored.channels)
    return np.asarray(samples.mean(axis=1) / 2**31, np.float32)


def cut_windows(audio: Floats) -> Floats:
    """Return mono audio [samples] as overlapping windows [windows, 43844, 1], with silence around it."""
    count = max(1, -(-len(audio) // STRIDE))
    padded = np.zeros((count - 1) * STRIDE + WINDOW, np.float32)
    padded[EDGE : EDGE + len(audio)] = audio
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::STRIDE]
    return windows[:, :, np.newaxis]


def join_windows(output: Floats) -> Floats:
    """Return the inner frames of all windows in a row: [windows, 172, 88] becomes [frames, 88]."""
    return output[:, EDGE_FRAMES:-EDGE_FRAMES].reshape(-1, output.shape[-1])


def frame_times(windows: int) -> npt.NDArray[np.float64]:
    """Return the second at which each joined frame begins.

    A window's inner frames cover a little more than the stride from window to window (142 hops against
    141.3), so the times are counted afresh from each window's begin; counting hops throughout would drift by
    5 ms a second.
    """
    inner = WINDOW // HOP + 1 - 2 * EDGE_FRAMES
    samples = np.arange(windows)[:, np.newaxis] * STRIDE + np.arange(inner) * HOP
    return samples.reshape(-1) / SAMPLE_RATE


def find_notes(note: Floats, onset: Floats, times: npt.NDArray[np.float64]) -> list[Note]:
    """Return the notes in `note` and `onset`, both [frames, 88], in the order in which they begin."""
    peaks = find_peaks(onset)
    found = [
        Note(
            pitch_midi=LOWEST_PITCH + key,
            start_seconds=round(float(times[start]), 3),
            end_seconds=round(float(times[end - 1]) + HOP / SAMPLE_RATE, 3),
            amplitude=round(float(note[start:end, key].mean()), 3),
        )
        for key in range(note.shape[1])
        for start, end in find_spans(note[:, key], np.flatnonzero(peaks[:, key]))
    ]
    return sorted(found, key=lambda one: (one.start_seconds, one.pitch_midi))


def find_peaks(onset: Floats) -> npt.NDArray[np.bool_]:
    """Tell where in [frames, 88] an onset is sure enough and the strongest of those around it."""
    padded = np.pad(onset, ((ONSET_REACH, ONSET_REACH), (0, 0)))
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * ONSET_REACH + 1, axis=0)
    peaks: npt.NDArray[np.bool_] = (onset >= ONSET_THRESHOLD) & (onset == around.max(axis=-1))
    return peaks


def find_spans(note: Floats, starts: npt.NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Yield first frame and end of each note of one key: from an onset until silence or the next onset."""
    for start, following in pairwise([*starts.tolist(), len(note)]):
        silent = np.flatnonzero(note[start + ATTACK : following] < NOTE_THRESHOLD)
        end = start + ATTACK + int(silent[0]) if silent.size else following
        if end - start >= SHORTEST_NOTE:
            yield start, end
