/**
 * Bytes that arrive in parts, kept in one growing array: a hostile sender of one-byte packets costs memory for the
 * bytes only, not for a list of packets.
 */
export class ByteBuffer {
  private bytes = new Uint8Array(0)
  private used = 0

  get length(): number {
    return this.used
  }

  append(part: Uint8Array): void {
    const needed = this.used + part.length
    if (needed > this.bytes.length) {
      const grown = new Uint8Array(Math.max(needed, this.bytes.length * 2, CAPACITY_MIN))
      grown.set(this.bytes.subarray(0, this.used))
      this.bytes = grown
    }
    this.bytes.set(part, this.used)
    this.used = needed
  }

  /** Gives all bytes so far, in order, and starts anew. The caller owns what it gets. */
  take(): Uint8Array {
    const taken = this.bytes.subarray(0, this.used)
    this.bytes = new Uint8Array(0)
    this.used = 0
    return taken
  }
}

const CAPACITY_MIN = 1024
