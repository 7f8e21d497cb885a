/** Watches how much of a frame that is not whole yet is kept for one connection. */
export type FrameMeter = {
  /** A frame became whole: what it took is not kept here any more. */
  frameEnded(): void
  /** To be told when less may be kept than before. */
  check(): void
}

/** What packets come from: a Duplex is one. */
export type PacketSource = {
  prependListener(event: 'data', listener: (packet: Uint8Array) => void): unknown
}

/** What a packet costs besides its bytes: a stranger may send one for each. */
export const PACKET_COST_BYTES = 256
/** Packets of a wide-area network have 1,400 bytes: their cost is a fifth more. Smaller ones are unusual, and then slower. */
const PACKETS_ALLOWANCE = 1.25

/**
 * Counts what comes in on `socket`, below the WebSocket, whose library knows one limit for every frame of a server and no sum.
 * `onExceeded` is told when more has come without a whole frame than `bytesMax()` and its packets: at each packet, so that never more
 * is kept than that and one packet. Control frames between, and what a packet holds of the next frame, make the count a few bytes wrong.
 */
export function meterFrames(
  socket: PacketSource,
  { bytesMax, onExceeded }: { readonly bytesMax: () => number; readonly onExceeded: () => void },
): FrameMeter {
  let unfinished = 0
  const check = () => {
    if (unfinished > bytesMax() * PACKETS_ALLOWANCE) onExceeded()
  }
  // Before the library's own listener, so that a packet which ends a frame is counted to that frame.
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
