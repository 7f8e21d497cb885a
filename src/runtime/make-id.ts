import { randomUUID } from 'node:crypto'

/** Returns a random id of letters and digits. It cannot be guessed. */
export function makeId(): string {
  return randomUUID().replaceAll('-', '')
}
