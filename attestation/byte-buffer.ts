/**
 * Joins parts of bytes in one growing array. A list of one-byte parts would need much more memory.
 */
export class ByteBuffer {
  private bytes: Uint8Array = new Uint8Array(0)
  private used = 0

  get length(): number {
    return this.used
  }

  get last(): number | undefined {
    return this.bytes[this.used - 1]
  }

  append(part: Uint8Array): void {
    if (this.used === 0) {
      // Keeps the first part without a copy, because it is usually the only part.
      this.bytes = part
      this.used = part.length
      return
    }
    const needed = this.used + part.length
    if (needed > this.bytes.length) {
      const grown = new Uint8Array(Math.max(needed, this.bytes.length * 2, CAPACITY_MIN))
      grown.set(this.bytes.subarray(0, this.used))
      this.bytes = grown
    }
    this.bytes.set(part, this.used)
    this.used = needed
  }

  /** Returns all bytes and empties the buffer. A single part is not copied. */
  take(): Uint8Array {
    const taken = this.bytes.subarray(0, this.used)
    this.bytes = new Uint8Array(0)
    this.used = 0
    return taken
  }
}

const CAPACITY_MIN = 1024
