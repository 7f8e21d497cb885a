import { isOtherRoot } from '#attestation/report/unknown-root.ts'
import type { ConnectOptions } from '#client/index.ts'
import { ExpectationFault } from '../../verify/expectation-fault.ts'
import type { FormExpectations } from '../../verify/job.ts'
import { readGivenExpectations } from '../../verify/read-expectations.ts'

/**
 * Returns this tab's expectations for the client, and whether they trust another root than AWS's.
 * Throws ExpectationFault for invalid expectations, and for expectations that accept any code. The
 * page then sends no message.
 */
export async function clientExpectations(given: FormExpectations): Promise<{
  readonly options: Pick<ConnectOptions, 'expect' | 'roots' | 'allowDebug'>
  readonly isDevelopment: boolean
}> {
  const { expected } = await readGivenExpectations(given)
  const { measurements, roots } = expected.attestation
  if (measurements === 'any')
    throw new ExpectationFault(
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
      expect: {
        ...(measurements.length === 0 ? {} : { measurements }),
        ...(configurations.length === 0 ? {} : { configurations }),
        ...(releases.length === 0 ? {} : { releases, releaseKeys: linesOf(given.releaseKeys) }),
        ...(releaseSigners === 0 ? {} : { releaseSigners }),
      },
      ...(roots === undefined ? {} : { roots }),
    },
  }
}

function linesOf(text: string): readonly string[] {
  return text.split(/[\s,]+/).filter((line) => line !== '')
}
