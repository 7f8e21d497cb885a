/** Memory that is set aside for one answer with images, from when it is asked for. */
export type ImageReservation = {
  readonly bytes: number
  /** Gives it back. Only the first time counts. */
  release(): void
}

/** What all answers with images that are under way may take together. */
export type ImageBudget = {
  /** Null when there is not so much left. */
  reserve(bytes: number): ImageReservation | null
  inUse(): number
}

/** Bytes of a pixel before compression: red, green, blue and alpha. */
const PIXEL_BYTES = 4
/**
 * What the public client's pipelines draw, whatever the size that they are asked for (SDXL: 1,024
 * pixels).
 */
const DRAWN_PIXELS = 1_024 * 1_024
/** File headers and metadata of an image, and the frame around it. */
const MARGIN_BYTES = 64 * 1024

/**
 * What an answer may take, bytes: `n` images of the size asked for, or of DRAWN_PIXELS if that is
 * more, not even compressed, in base64; at most `frameBytesMax`, into which ten of 1,024 pixels go
 * as PNG commonly compresses them (2.4 MB each).
 */
export function answerBytesOf(
  { n, size }: { readonly n: number; readonly size: string },
  frameBytesMax: number,
): number {
  const [width = 0, height = 0] = size.split('x').map(Number)
  const imageBytes = (Math.max(width * height, DRAWN_PIXELS) * PIXEL_BYTES * 4) / 3 + MARGIN_BYTES
  return Math.min(Math.ceil(n * imageBytes), frameBytesMax)
}

/** A budget of `bytesMax`, all of it free. */
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

/** Watches how much of a frame that is not whole yet is kept for one connection. */
export type FrameMeter = {
  /** A frame became whole: what it took is not kept here any more. */
  frameEnded(): void
  /** To be told when less may be kept than before. */
  check(): void
}

/** What packets come from: a Duplex is one. */
type PacketSource = {
  prependListener(event: 'data', listener: (packet: Uint8Array) => void): unknown
}

/** What a packet costs besides its bytes: a stranger may send one for each. */
export const PACKET_COST_BYTES = 256
/**
 * Packets of a wide-area network have 1,400 bytes: their cost is a fifth more. Smaller ones are
 * unusual, and then slower.
 */
const PACKETS_ALLOWANCE = 1.25

/**
 * Counts what comes in on `socket`, below the WebSocket, whose library knows one limit for every
 * frame of a server and no sum. `onExceeded` is told when more has come without a whole frame than
 * `bytesMax()` and its packets: at each packet, so that never more is kept than that and one
 * packet. Control frames between, and what a packet holds of the next frame, make the count a few
 * bytes wrong.
 */
export function meterFrames(
  socket: PacketSource,
  { bytesMax, onExceeded }: { readonly bytesMax: () => number; readonly onExceeded: () => void },
): FrameMeter {
  let unfinished = 0
  const check = () => {
    if (unfinished > bytesMax() * PACKETS_ALLOWANCE) onExceeded()
  }
  // Before the library's own listener, so that a packet which ends a frame is counted to that
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
