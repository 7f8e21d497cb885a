import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const root = join(import.meta.dirname, '../..')

/** Files that are, or will be, in the repository: all, or those that fit one of the patterns. */
export function listTracked(...patterns: readonly string[]): readonly string[] {
  const words = ['ls-files', '--cached', '--others', '--exclude-standard', ...patterns]
  return execFileSync('git', words, { cwd: root, encoding: 'utf8' })
    .split('\n')
    .filter((file) => file !== '' && existsSync(join(root, file)))
}

export const readTracked = (file: string): string => readFileSync(join(root, file), 'utf8')
