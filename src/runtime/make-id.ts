import { randomUUID } from 'node:crypto'

/** Makes an id of letters and digits that cannot be guessed. */
export function makeId(): string {
  return randomUUID().replaceAll('-', '')
}
