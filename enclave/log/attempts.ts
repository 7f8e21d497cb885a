import { createHash } from 'node:crypto'

/**
 * Most requests of one generation. When it is full the next begins, but not before
 * GENERATION_MIN_MS.
 */
export const GENERATION_REQUESTS_MAX = 2 ** 22

/** How long a generation goes on while it is not full, milliseconds. */
export const GENERATION_MS = 24 * 3_600_000

/** How long a generation lasts at least, milliseconds: no caller waits so long for an answer. */
export const GENERATION_MIN_MS = 3_600_000

/** Counts how often a log was asked for a completion of each request. */
export type Attempts = {
  /**
   * Counts one more call of a request, and gives how many there were, this one included. Null when
   * no more requests can be remembered. The call must then be refused, because a request that is
   * not remembered could be repeated unnoticed. `digest`: the request's SHA-256.
   */
  readonly count: (digest: Uint8Array) => number | null
}

/**
 * Remembers every request for at least GENERATION_MIN_MS, and for 24 to 48 h while there are fewer
 * than GENERATION_REQUESTS_MAX of them. Costs 13 to 27 bytes for each. `key` is 16 random bytes or
 * more that nobody else knows, so that nobody can find two requests that are counted as one.
 * `monotonic`: milliseconds of a clock that is never set.
 */
export function createAttempts({
  key,
  monotonic,
  requestsMax = GENERATION_REQUESTS_MAX,
}: {
  readonly key: Uint8Array
  readonly monotonic: () => number
  readonly requestsMax?: number
}): Attempts {
  let newest = new CountTable(monotonic())
  let before: CountTable | null = null

  function isOver({ beganAtMs, size }: CountTable): boolean {
    const ageMs = monotonic() - beganAtMs
    return ageMs >= GENERATION_MS || (size >= requestsMax && ageMs >= GENERATION_MIN_MS)
  }

  return {
    count: (digest) => {
      if (isOver(newest)) {
        before = newest
        newest = new CountTable(monotonic())
      }
      const fingerprint = createHash('sha256').update(key).update(digest).digest()
      const known = newest.find(fingerprint)
      if (known === 0 && newest.size >= requestsMax) return null
      const count = Math.min(COUNT_MAX, (known || (before?.find(fingerprint) ?? 0)) + 1)
      newest.set(fingerprint, count)
      return count
    },
  }
}

/** Counts go no higher, which is more than anybody asks for one request. */
const COUNT_MAX = 0xffff

/** Slots of an empty table; doubled whenever three quarters are taken. */
const SLOTS_MIN = 1_024

/**
 * Counts by 64-bit fingerprints, in arrays of numbers: a Map of the same would take eight times the
 * memory. A slot whose count is 0 is free. A fingerprint whose slot is taken goes into the next
 * free one.
 */
class CountTable {
  readonly beganAtMs: number
  size = 0
  private high = new Uint32Array(SLOTS_MIN)
  private low = new Uint32Array(SLOTS_MIN)
  private counts = new Uint16Array(SLOTS_MIN)

  constructor(beganAtMs: number) {
    this.beganAtMs = beganAtMs
  }

  /** 0 when there is none. */
  find(fingerprint: Buffer): number {
    const slot = this.slotOf(fingerprint.readUInt32BE(0), fingerprint.readUInt32BE(4))
    return this.counts[slot] ?? 0
  }

  /** `count` is from 1. */
  set(fingerprint: Buffer, count: number): void {
    this.put(fingerprint.readUInt32BE(0), fingerprint.readUInt32BE(4), count)
    if (this.size * 4 > this.counts.length * 3) this.grow()
  }

  private put(high: number, low: number, count: number): void {
    const slot = this.slotOf(high, low)
    if (this.counts[slot] === 0) this.size++
    this.high[slot] = high
    this.low[slot] = low
    this.counts[slot] = count
  }

  /** Where the fingerprint is, or the free slot where it belongs. */
  private slotOf(high: number, low: number): number {
    const mask = this.counts.length - 1
    let slot = low & mask
    while (this.counts[slot] !== 0 && !(this.high[slot] === high && this.low[slot] === low))
      slot = (slot + 1) & mask
    return slot
  }

  private grow(): void {
    const { high, low, counts } = this
    this.high = new Uint32Array(counts.length * 2)
    this.low = new Uint32Array(counts.length * 2)
    this.counts = new Uint16Array(counts.length * 2)
    this.size = 0
    for (let slot = 0; slot < counts.length; slot++) {
      const count = counts[slot] ?? 0
      if (count > 0) this.put(high[slot] ?? 0, low[slot] ?? 0, count)
    }
  }
}
