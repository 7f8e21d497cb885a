import { setTimeout as sleep } from 'node:timers/promises'

/** Waits until `isTrue`; throws with `what` when that takes longer than `timeoutMs`. */
export async function until(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
  timeoutMs = 30_000,
): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await isTrue())) {
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain: ${what}`)
    await sleep(10)
  }
}

/** Limits count by minutes of the clock: waits for a minute that has at least `leftMs` left. */
export async function enoughOfTheMinute(leftMs = 10_000): Promise<void> {
  const left = 60_000 - (Date.now() % 60_000)
  if (left < leftMs) await sleep(left + 50)
}
