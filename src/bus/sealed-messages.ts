import { createHmac, timingSafeEqual } from 'node:crypto'
import { LruMap } from '../runtime/lru-map.ts'

/*
 * A sealed message on the bus: a byte for the form, eight bytes for the time (Unix milliseconds),
 * eight for a number that its sender uses only once, a byte for the length of the sender's id, the
 * id, 32 bytes of MAC, and the body. Whole numbers are big-endian. The MAC is HMAC-SHA-256 over the
 * subject, the reply subject (if there is one), and all of the message except the MAC.
 */

const FORM = 1
const MAC_BYTES = 32
const HEAD_BYTES = 18
const SENDER_BYTES_MAX = 64
export const SEAL_BYTES_MAX = HEAD_BYTES + SENDER_BYTES_MAX + MAC_BYTES

/** Maximum age by the receiver's clock. A message can also be this far in the future. */
export const MESSAGE_AGE_MAX_MS = 30_000
/** A number is refused if it is at least this far below its sender's highest number. */
const NUMBERS_MAX = 65_536
/** How many senders are remembered. A service has fewer gateways. */
const SENDERS_MAX = 1_024

export type SealRefusal =
  | 'unsealed' // no seal of this form
  | 'forged' // the MAC is not from a gateway of the service, or is for another subject
  | 'stale' // too old, or from the future: a clock is wrong, or the message was sent again
  | 'replayed' // its number was used before

/** `reply`: the subject for the answer, if an answer is expected. */
export type MessageSubject = { readonly subject: string; readonly reply?: string | undefined }

type OpenedMessage =
  | { readonly from: string; readonly body: Uint8Array }
  | { readonly refusal: SealRefusal }

export type MessageSealer = {
  seal(place: MessageSubject, body: Uint8Array): Uint8Array
  open(place: MessageSubject, sealed: Uint8Array): OpenedMessage
}

/** All gateways of a service have the same key. `now` returns Unix milliseconds. */
export function createMessageSealer({
  key,
  id,
  now,
}: {
  readonly key: Uint8Array
  readonly id: string
  readonly now: () => number
}): MessageSealer {
  const taken = new LruMap<string, NumbersTaken>(SENDERS_MAX)
  const sender = Buffer.from(id)
  let number = 0n

  function macOf(place: MessageSubject, head: Uint8Array, body: Uint8Array): Buffer {
    const subjects = Buffer.from(JSON.stringify([place.subject, place.reply ?? null]))
    const length = Buffer.alloc(4)
    length.writeUInt32BE(subjects.length)
    return createHmac('sha256', key)
      .update(length)
      .update(subjects)
      .update(head)
      .update(body)
      .digest()
  }

  return {
    seal(place, body) {
      const head = Buffer.alloc(HEAD_BYTES + sender.length)
      head.writeUInt8(FORM, 0)
      head.writeBigUInt64BE(BigInt(Math.floor(now())), 1)
      head.writeBigUInt64BE(number++, 9)
      head.writeUInt8(sender.length, 17)
      sender.copy(head, HEAD_BYTES)
      return Buffer.concat([head, macOf(place, head, body), body])
    },
    open(place, sealed) {
      const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.length)
      const headBytes = HEAD_BYTES + (bytes[17] ?? 0)
      if (bytes[0] !== FORM || bytes.length < headBytes + MAC_BYTES) return { refusal: 'unsealed' }
      const head = bytes.subarray(0, headBytes)
      const mac = bytes.subarray(headBytes, headBytes + MAC_BYTES)
      const body = bytes.subarray(headBytes + MAC_BYTES)
      if (!timingSafeEqual(mac, macOf(place, head, body))) return { refusal: 'forged' }
      const atMs = Number(head.readBigUInt64BE(1))
      if (Math.abs(now() - atMs) > MESSAGE_AGE_MAX_MS) return { refusal: 'stale' }
      const from = head.subarray(HEAD_BYTES).toString()
      const numbers = taken.getOrMake(from, () => new NumbersTaken())
      return numbers.take(Number(head.readBigUInt64BE(9)))
        ? { from, body }
        : { refusal: 'replayed' }
    },
  }
}

/** Each number of a sender is accepted once, in any order. */
class NumbersTaken {
  readonly #recent = new Set<number>()
  #highest = -1

  /** False if the number was used before, or is too low to be remembered. */
  take(number: number): boolean {
    if (number <= this.#highest - NUMBERS_MAX || this.#recent.has(number)) return false
    this.#highest = Math.max(this.#highest, number)
    this.#recent.add(number)
    if (this.#recent.size > 2 * NUMBERS_MAX)
      for (const old of this.#recent)
        if (old <= this.#highest - NUMBERS_MAX) this.#recent.delete(old)
    return true
  }
}
