import { printable } from '#attestation/report/printable.ts'
import type { Affidavit } from '#client/connect.ts'
import { AffidavitError, messageOf } from '#client/errors.ts'
import { CliError } from '../faults.ts'
import { loadPolicy } from '../policy-file.ts'

/**
 * Reads the policy again at each SIGHUP, and uses its releases. If they are refused,
 * the old releases stay in use. Prints a line for each outcome. Returns a function that stops this.
 */
export function followReleases(
  affidavit: Pick<Affidavit, 'updateReleases'>,
  file: string,
): () => void {
  const read = () =>
    void useReleases(affidavit, file).then((outcome) =>
      process.stderr.write(`${printable(file)}: ${printable(outcome)}\n`),
    )
  process.on('SIGHUP', read)
  return () => process.off('SIGHUP', read)
}

/** Never rejects. */
async function useReleases(
  affidavit: Pick<Affidavit, 'updateReleases'>,
  file: string,
): Promise<string> {
  try {
    const { enclaves } = await loadPolicy(file)
    const releases = enclaves?.releases
    if (releases === undefined) throw new CliError('expected enclaves.releases')
    await affidavit.updateReleases(releases)
    return 'its releases are in use now'
  } catch (fault) {
    const reason = messageOf(fault)
    // With any other code, the client took the releases, and then found no enclave.
    const isRefused = !(fault instanceof AffidavitError) || REFUSALS.has(fault.code)
    return isRefused
      ? `its releases are refused, and the old ones stay in use: ${reason}`
      : `its releases are in use now, but no enclave passes the checks: ${reason}`
  }
}

const REFUSALS: ReadonlySet<string> = new Set(['older_releases', 'invalid_options'])
