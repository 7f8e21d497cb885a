import { randomUUID } from 'node:crypto'

/** Returns an id that cannot be guessed, of letters and digits. */
export function makeId(): string {
  return randomUUID().replaceAll('-', '')
}
