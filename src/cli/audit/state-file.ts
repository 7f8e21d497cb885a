import { readFile } from 'node:fs/promises'
import { printable } from '#attestation/report/printable.ts'
import { type AuditState, openAuditState, UnusableState } from '#audit/saved-state.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { writeFileWhole } from '../files.ts'

/** A missing file is an empty state. Without a `path`, no state is stored. Throws CliError. */
export async function openStateFile(path: string | null, scope: string): Promise<AuditState> {
  const store =
    path === null
      ? null
      : { read: () => readText(path), write: (text: string) => writeFileWhole(path, text) }
  try {
    return await openAuditState(store, { scope, now: Date.now })
  } catch (fault) {
    if (!(fault instanceof UnusableState)) throw fault
    const file = printable(path ?? '')
    throw new CliError(
      fault.code === 'other_scope'
        ? `${file} was written by an audit with other options (--from, --key, --rpc, ` +
            '--from-block, --pcr, --release, --root, --configuration), or with another list of ' +
            'releases: use the same, or another file, which starts from the beginning'
        : `${file} is not the state of an audit (${fault.message}): remove it to start again`,
      EXIT_CODES.usage,
    )
  }
}

/** Null if the file does not exist. */
async function readText(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8')
  } catch (fault) {
    if (fault instanceof Error && 'code' in fault && fault.code === 'ENOENT') return null
    throw new CliError(
      `cannot read ${printable(path)}: ${fault instanceof Error ? fault.message : 'unknown fault'}`,
      EXIT_CODES.usage,
    )
  }
}
