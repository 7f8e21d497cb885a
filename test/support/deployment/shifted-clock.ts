import { readFileSync } from 'node:fs'

/*
 * For `node --import`: the wall clock of one process is ahead by the milliseconds in the file
 * CLOCK_FILE, which is read again every 50 ms. JavaScript's Date is shifted. The monotonic clock is
 * not, as when a real clock is set; nor are timers, which use it. Native code, such as TLS with its
 * certificates, sees the true time.
 */

const file = process.env.CLOCK_FILE
if (file === undefined) throw new Error('expected CLOCK_FILE to be a file')

const TrueDate = Date
let aheadMs = 0

function look(): void {
  try {
    aheadMs = Number(readFileSync(file ?? '', 'utf8')) || 0
  } catch {
    aheadMs = 0
  }
}

class ShiftedDate extends TrueDate {
  constructor(...given: readonly unknown[]) {
    if (given.length === 0) super(TrueDate.now() + aheadMs)
    else super(...(given as [number]))
  }

  static override now(): number {
    return TrueDate.now() + aheadMs
  }
}

globalThis.Date = ShiftedDate as DateConstructor
look()
setInterval(look, 50).unref()
