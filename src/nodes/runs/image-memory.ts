/** Memory for one answer with images, reserved when the images are requested. */
export type ImageReservation = {
  readonly bytes: number
  /** Returns the memory to the budget. Only the first call has an effect. */
  release(): void
}

/** Limits the memory of all answers with images that nodes make or send. */
export type ImageBudget = {
  /** Reserves memory for an answer. Null when less than `bytes` is left. */
  reserve(bytes: number): ImageReservation | null
  inUse(): number
}

/** Bytes of a pixel before compression: red, green, blue and alpha. */
const PIXEL_BYTES = 4
/**
 * Number of pixels that the public client's pipelines draw, for any requested size (SDXL: 1,024
 * pixels per edge).
 */
const DRAWN_PIXELS = 1_024 * 1_024
/**
 * Maximum number of bytes for an image's headers and metadata, and for the frame around the image.
 */
const MARGIN_BYTES = 64 * 1024

/**
 * Returns the maximum number of bytes of an answer, at most `frameBytesMax`: `n` images,
 * uncompressed and in base64, of the requested size or DRAWN_PIXELS, whichever is larger. Ten
 * images of 1,024 pixels fit within `frameBytesMax` when PNG compresses them as usual (2.4 MB
 * each).
 */
export function answerBytesOf(
  { n, size }: { readonly n: number; readonly size: string },
  frameBytesMax: number,
): number {
  const [width = 0, height = 0] = size.split('x').map(Number)
  const imageBytes = (Math.max(width * height, DRAWN_PIXELS) * PIXEL_BYTES * 4) / 3 + MARGIN_BYTES
  return Math.min(Math.ceil(n * imageBytes), frameBytesMax)
}

/** Creates a budget of `bytesMax` bytes, all free. */
export function createImageBudget(bytesMax: number): ImageBudget {
  let inUse = 0
  return {
    inUse: () => inUse,
    reserve(bytes) {
      if (inUse + bytes > bytesMax) return null
      inUse += bytes
      let isReleased = false
      return {
        bytes,
        release() {
          if (isReleased) return
          isReleased = true
          inUse -= bytes
        },
      }
    },
  }
}

/** Measures the memory of a connection's unfinished frame. */
export type FrameMeter = {
  /** Called when a frame is complete. Its bytes then no longer count. */
  frameEnded(): void
  /** Compares the count with the limit again. Must be called when the limit becomes smaller. */
  check(): void
}

/** Source of packets. Duplex has these methods. */
type PacketSource = {
  prependListener(event: 'data', listener: (packet: Uint8Array) => void): unknown
}

/** Memory that a packet takes besides its bytes. An untrusted node may send one byte per packet. */
export const PACKET_COST_BYTES = 256
/**
 * Packets of a wide-area network have 1,400 bytes, to which PACKET_COST_BYTES adds a fifth. With
 * smaller packets, which are unusual, fewer bytes are accepted.
 */
const PACKETS_ALLOWANCE = 1.25

/**
 * Counts the bytes that arrive on `socket`, below the WebSocket, because the WebSocket library has
 * only one frame limit for a whole server. After each packet, this adds up the bytes since the last
 * whole frame and the cost of their packets. It calls `onExceeded` if the sum is more than
 * `bytesMax()` times PACKETS_ALLOWANCE. So at most this limit and one packet are kept. Control
 * frames in between, and the part of a packet that belongs to the next frame, make the count wrong
 * by a few bytes.
 */
export function meterFrames(
  socket: PacketSource,
  { bytesMax, onExceeded }: { readonly bytesMax: () => number; readonly onExceeded: () => void },
): FrameMeter {
  let unfinished = 0
  const check = () => {
    if (unfinished > bytesMax() * PACKETS_ALLOWANCE) onExceeded()
  }
  // This listener runs before the library's own. So a packet that ends a frame counts for that
  // frame.
  socket.prependListener('data', (packet) => {
    unfinished += packet.length + PACKET_COST_BYTES
    check()
  })
  return {
    check,
    frameEnded() {
      unfinished = 0
    },
  }
}
