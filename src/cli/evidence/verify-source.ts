import type { EvidenceBundle } from '../../../attestation/evidence/bundle.ts'
import type { AttestationPolicy } from '../../../attestation/nitro/policy.ts'
import { ownMembers } from '../../../attestation/own-members.ts'
import {
  bundleOnlyOptions,
  completeBundlePolicy,
  demandsAttestation,
  readAttestationPolicy,
  readRevocationLists,
} from '../expected-evidence.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { isUrl, readSource, type SourceOptions } from '../files.ts'
import { type BundleOptions, type GatewayOptions, hashOf, isHash } from '../options.ts'
import type { ListingVerifier } from '../revocation/listing-verifier.ts'
import { type KeptFiles, type KeptOptions, keptOf, readKeptFiles } from './kept-exchange.ts'
import { readBundle, readInput, type Subject } from './read-evidence.ts'
import { reportBundle } from './verify-bundle.ts'
import { printJson, printText, type SubjectReport, verifySubject } from './verify-record.ts'

/** What the options say, as commander gives it. */
export type VerifyOptions = BundleOptions &
  GatewayOptions &
  KeptOptions & { readonly json?: boolean }

/** What `verify` prints, and whether it is good enough for an exit code of 0. */
export type Outcome = { readonly output: string; readonly isOk: boolean }

/** Checks what a source has, as the options say. Throws CliError for what is no evidence. */
export async function verifySource(source: string, options: VerifyOptions): Promise<Outcome> {
  // Before anything is fetched: what is wrong with the command is told first.
  const expected = await readAttestationPolicy(options)
  const policy = await completeBundlePolicy(expected, options)
  const openVerifier = await readRevocationLists(options, Date.now())
  const hash = isHash(source) ? hashOf(source) : null
  const { place, key } = await locate(source, { hash, options })
  const files = await readKeptFiles(source, options)
  const bytes = await readSource(place, key)
  if (hash !== null) checkAskedFor(hash, readBundle(bytes, "the gateway's answer"))
  const input = readInput(bytes, files.requestBody)
  const isOfOne = input.kind === 'bundle' || input.subjects.length === 1
  const verifier = openVerifier({ isOfOne })
  switch (input.kind) {
    case 'bundle':
      return await reportBundle(input.bundle, { policy, verifier, kept: keptOf(files) }, options)
    case 'records':
      return await reportRecords(input.subjects, { expected, verifier, files }, options)
  }
}

/**
 * Where a source is, and with which key it is fetched. The environment is looked at for a URL
 * alone: a file needs no key, no complaint about one, and none of the modules that read it.
 */
async function locate(
  source: string,
  { hash, options }: { readonly hash: string | null; readonly options: VerifyOptions },
): Promise<{ readonly place: string; readonly key: SourceOptions }> {
  if (hash === null && !isUrl(source)) return { place: source, key: {} }
  const { chooseKey, evidenceUrl } = await import('../gateway-access.ts')
  const place = hash === null ? source : evidenceUrl(hash, options)
  return { place, key: chooseKey(place, options) }
}

/**
 * A gateway may answer with evidence of anything. Its own checks will show that its hash is of its
 * request and response.
 */
function checkAskedFor(hash: string, { record }: EvidenceBundle): void {
  if (record.hash !== hash)
    throw new CliError(
      `expected the evidence of ${hash}, got that of another completion, ${record.hash}`,
    )
}

async function reportRecords(
  subjects: readonly Subject[],
  demands: {
    readonly expected: AttestationPolicy
    readonly verifier: ListingVerifier
    readonly files: KeptFiles
  },
  options: VerifyOptions,
): Promise<Outcome> {
  const [unfit] = bundleOnlyOptions(options)
  if (unfit !== undefined)
    throw new CliError(
      `expected an evidence bundle for ${unfit}: a record does not hold enough`,
      EXIT_CODES.usage,
    )
  const { expected, verifier, files } = demands
  checkComparable(subjects, files)
  const kept = keptOf(files)
  const policy = demandsAttestation(options) ? expected : null
  const { allowOutcome = [] } = ownMembers(options)
  const reports: readonly SubjectReport[] = await Promise.all(
    subjects.map((subject) => verifySubject(subject, { policy, allowOutcome, verifier, kept })),
  )
  const [unused] = verifier.unused()
  if (subjects.length > 1 && unused !== undefined) throw unused
  return {
    output: options.json ? printJson(reports) : printText(reports),
    isOk: reports.every((report) => report.ok),
  }
}

/**
 * What was kept is of one call. An answer that is the source itself has nothing else to be compared
 * with.
 */
function checkComparable(subjects: readonly Subject[], { requestBody, answer }: KeptFiles): void {
  if (requestBody === null && answer === null) return
  if (subjects.length > 1)
    throw new CliError(
      'expected one record with --request and --answer, got a page of them',
      EXIT_CODES.usage,
    )
  if (answer !== null && subjects[0]?.request !== undefined)
    throw new CliError(
      'expected no --answer: the source is an answer itself; name the evidence as the source',
      EXIT_CODES.usage,
    )
}
