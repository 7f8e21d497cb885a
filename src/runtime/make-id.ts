import { randomUUID } from 'node:crypto'

/** An id that cannot be guessed: letters and digits. */
export function makeId(): string {
  return randomUUID().replaceAll('-', '')
}
