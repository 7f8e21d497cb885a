/** Memory that is reserved for one answer with images when the images are requested. */
export type ImageReservation = {
  readonly bytes: number
  /** Gives the memory back. Only the first call counts. */
  release(): void
}

/** Limits the memory of all answers with images that are under way. */
export type ImageBudget = {
  /** Reserves memory for an answer; null when less than `bytes` is left. */
  reserve(bytes: number): ImageReservation | null
  inUse(): number
}

/** Bytes of a pixel before compression: red, green, blue and alpha. */
const PIXEL_BYTES = 4
/**
 * Pixels that the public client's pipelines draw, for any requested size (SDXL: 1,024 pixels per
 * edge).
 */
const DRAWN_PIXELS = 1_024 * 1_024
/** File headers and metadata of an image, and the frame around it. */
const MARGIN_BYTES = 64 * 1024

/**
 * The most bytes that an answer may take, at most `frameBytesMax`. It is the size of `n` images,
 * uncompressed and in base64, with the requested size or DRAWN_PIXELS, the larger of the two. Ten
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

/** Creates a budget of `bytesMax`. All of its memory is free. */
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

/** Watches how much memory one connection's unfinished frame takes. */
export type FrameMeter = {
  /** Called when a frame is complete. Its bytes are no longer counted here. */
  frameEnded(): void
  /** Must be called when the limit has become smaller. */
  check(): void
}

/** Source of packets; a Duplex has this form. */
type PacketSource = {
  prependListener(event: 'data', listener: (packet: Uint8Array) => void): unknown
}

/**
 * Memory that a packet takes in addition to its bytes. An untrusted node may send one byte per
 * packet.
 */
export const PACKET_COST_BYTES = 256
/**
 * Packets of a wide-area network have 1,400 bytes, and PACKET_COST_BYTES adds a fifth to them.
 * Smaller packets are unusual; with these, fewer bytes are accepted.
 */
const PACKETS_ALLOWANCE = 1.25

/**
 * Counts the bytes that come in on `socket`, below the WebSocket: the WebSocket library has one
 * frame limit for a whole server, and no limit for a sum. After each packet, the bytes since the
 * last whole frame and the cost of its packets are compared with `bytesMax()`, to which
 * PACKETS_ALLOWANCE is applied. If they are more, `onExceeded` is called. So at most this limit and
 * one packet are kept. Control frames in between, and the part of a packet that belongs to the next
 * frame, make the count wrong by a few bytes.
 */
export function meterFrames(
  socket: PacketSource,
  { bytesMax, onExceeded }: { readonly bytesMax: () => number; readonly onExceeded: () => void },
): FrameMeter {
  let unfinished = 0
  const check = () => {
    if (unfinished > bytesMax() * PACKETS_ALLOWANCE) onExceeded()
  }
  // This listener comes before the library's own. So a packet that ends a frame counts for that
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
