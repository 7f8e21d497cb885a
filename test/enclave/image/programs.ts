import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Whether a program of the operating system is installed. */
export function hasProgram(name: string): boolean {
  return (process.env.PATH ?? '').split(delimiter).some((folder) => existsSync(join(folder, name)))
}
