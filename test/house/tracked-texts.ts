import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { findPhrases, type Phrase, type UserText } from './plain-words.ts'

export const root = join(import.meta.dirname, '../..')

/** Sources and pages that are, or will be, in the repository. */
export const tracked = execFileSync(
  'git',
  ['ls-files', '--cached', '--others', '--exclude-standard', '*.ts', '*.tsx', '*.md'],
  { cwd: root, encoding: 'utf8' },
).split('\n')

/** A line for each phrase in these texts. */
export function faultsOf(
  texts: readonly UserText[],
  phrases: readonly Phrase[],
): readonly string[] {
  return texts.flatMap(({ file, line, text }) =>
    findPhrases(text, phrases).map(
      ({ phrase, said }) => `${file}:${line}: "${said}", better: ${phrase.instead}: ${text}`,
    ),
  )
}
