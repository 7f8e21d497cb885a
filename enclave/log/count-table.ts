/** Highest count. Further calls of a request do not raise it. */
export const COUNT_MAX = 0xffff

/** Slots in an empty table. The table doubles whenever three quarters of the slots are taken. */
const SLOTS_MIN = 1_024

/**
 * Stores counts by 64-bit fingerprint, in arrays of numbers: a Map would take eight times the
 * memory. A slot with count 0 is free. If a fingerprint's slot is taken, the next free slot is
 * used.
 */
export class CountTable {
  readonly beganAtMs: number
  size = 0
  private high = new Uint32Array(SLOTS_MIN)
  private low = new Uint32Array(SLOTS_MIN)
  private counts = new Uint16Array(SLOTS_MIN)

  constructor(beganAtMs: number) {
    this.beganAtMs = beganAtMs
  }

  /** Returns 0 for an unknown fingerprint. */
  find(fingerprint: Buffer): number {
    const slot = this.slotOf(fingerprint.readUInt32BE(0), fingerprint.readUInt32BE(4))
    return this.counts[slot] ?? 0
  }

  /** `count` is at least 1. */
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

  /** Returns the slot of the fingerprint, or the free slot for it. */
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
