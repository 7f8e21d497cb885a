import { isOtherRoot } from '#attestation/report/unknown-root.ts'
import type { ConnectOptions } from '#client/index.ts'
import type { FormPolicy } from '../../verify/job.ts'
import { PolicyFault } from '../../verify/policy-fault.ts'
import { readGivenPolicy } from '../../verify/read-policy.ts'

/**
 * Returns this tab's policy for the client, and whether it trusts another root than AWS's.
 * Throws PolicyFault for invalid policy, and for policy that accept any code. The
 * page then sends no message.
 */
export async function clientPolicy(given: FormPolicy): Promise<{
  readonly options: Pick<ConnectOptions, 'policy' | 'allowDebug'>
  readonly isDevelopment: boolean
}> {
  const { expected } = await readGivenPolicy(given)
  const { measurements, roots } = expected.attestation
  if (measurements === 'any')
    throw new PolicyFault(
      'You accept any code, so anyone could read what you send.',
      'Name the code that you expect: a signed release, or measurements.',
    )
  const releases = await Promise.all(given.releases.map((file) => file.text()))
  const releaseSigners = Number(given.releaseSigners.trim())
  const { configurations } = expected
  return {
    isDevelopment: isOtherRoot(roots),
    options: {
      allowDebug: given.allowDebug,
      policy: {
        enclaves: {
          ...(measurements.length === 0 ? {} : { measurements }),
          ...(configurations.length === 0 ? {} : { configurations }),
          ...(releases.length === 0 ? {} : { releases, releaseKeys: linesOf(given.releaseKeys) }),
          ...(releaseSigners === 0 ? {} : { releaseSigners }),
          ...(roots === undefined ? {} : { roots }),
        },
        ...(given.providers.trim() === '' ? {} : { providers: JSON.parse(given.providers) }),
      },
    },
  }
}

function linesOf(text: string): readonly string[] {
  return text.split(/[\s,]+/).filter((line) => line !== '')
}
