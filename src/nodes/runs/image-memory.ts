export type ImageReservation = {
  readonly bytes: number
  /** Returns the memory to the budget. Only the first call has an effect. */
  release(): void
}

/** Limits the memory of answers with images, for all nodes together. */
export type ImageBudget = {
  reserve(bytes: number): ImageReservation | null
  inUse(): number
}

/** Uncompressed: red, green, blue and alpha. */
const PIXEL_BYTES = 4
/** The public client's pipelines draw this many pixels, for any requested size (SDXL). */
const DRAWN_PIXELS = 1_024 * 1_024
/** For the headers and metadata of an image, and for the frame around the image. */
const MARGIN_BYTES = 64 * 1024

/**
 * Returns an upper limit of the answer's size, at most `frameBytesMax`. Images count uncompressed
 * and in base64, with at least DRAWN_PIXELS pixels. Ten images of 1,024 pixels fit within
 * `frameBytesMax` when PNG compresses them as usual (2.4 MB each).
 */
export function answerBytesOf(
  { n, size }: { readonly n: number; readonly size: string },
  frameBytesMax: number,
): number {
  const [width = 0, height = 0] = size.split('x').map(Number)
  const imageBytes = (Math.max(width * height, DRAWN_PIXELS) * PIXEL_BYTES * 4) / 3 + MARGIN_BYTES
  return Math.min(Math.ceil(n * imageBytes), frameBytesMax)
}

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

export type FrameMeter = {
  /** Called when a frame is complete. */
  frameEnded(): void
  /** Must be called when the limit becomes smaller. */
  check(): void
}

type PacketSource = {
  prependListener(event: 'data', listener: (packet: Uint8Array) => void): unknown
}

/** Memory that a packet takes besides its bytes. An untrusted node may send one byte per packet. */
export const PACKET_COST_BYTES = 256
/**
 * Packets of a wide-area network have 1,400 bytes, so PACKET_COST_BYTES adds a fifth. With smaller
 * packets, which are rare, a node may send fewer bytes.
 */
const PACKETS_ALLOWANCE = 1.25

/**
 * Limits the memory of a connection's unfinished frame: its bytes, and the cost of its packets.
 * Counts on `socket`, below the WebSocket, because the WebSocket library has only one frame limit
 * for a whole server. Control frames, and packets with parts of two frames, make the count wrong
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
  // Runs before the library's own listener, so a packet that ends a frame counts for that frame.
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
