import type { Command } from 'commander'
import type { KeptExchange } from '../../../attestation/compare-exchange.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '../../../attestation/evidence/bundle.ts'
import type { BundleReport } from '../../../attestation/evidence/bundle-report.ts'
import type { BundlePolicy } from '../../../attestation/evidence/policy.ts'
import { verifyBundle } from '../../../attestation/evidence/verify-bundle.ts'
import { isJsonObject, type JsonObject, memberOf } from '../../../attestation/json/value.ts'
import type { AttestationPolicy } from '../../../attestation/nitro/policy.ts'
import { createAttestationVerifier } from '../../../attestation/nitro/verify-attestation.ts'
import { ownMembers } from '../../../attestation/own-members.ts'
import {
  compareKept,
  fillRecord,
  type KeptFiles,
  type KeptOptions,
  keptOf,
  readKeptFiles,
} from '../evidence/kept-exchange.ts'
import { readBundle, readInput, type Subject } from '../evidence/read-evidence.ts'
import { fetchChainFacts, isAccepted, printBundleJson, printBundleText } from '../evidence/verify-bundle.ts'
import { printJson, printText, type SubjectReport, verifySubject } from '../evidence/verify-record.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import {
  addBundleOptions,
  type BundleOptions,
  bundleOnlyOptions,
  completeBundlePolicy,
  demandsAttestation,
  readAttestationPolicy,
  readRevocationLists,
} from '../expected-evidence.ts'
import { isUrl, readSource } from '../files.ts'
import { chooseKey } from '../gateway-key.ts'
import { addGatewayOptions, evidenceUrl, type GatewayOptions, hashOf, isHash } from '../options.ts'
import { createListingVerifier, type ListingVerifier } from '../revocation/listing-verifier.ts'

type VerifyOptions = BundleOptions & GatewayOptions & KeptOptions & { readonly json?: boolean }

/** Adds `verify SOURCE`, which checks evidence by itself; README.md of src/cli says what its outcome means. */
export function registerVerify(program: Command): void {
  const command = program
    .command('verify')
    .description(
      'check an evidence bundle or a record: hashes, signature, receipt, log, anchor, who holds the key',
    )
    .argument('<source>', "a file, an http(s) URL, - for standard input, or a completion's hash")
    .option('--request <file>', 'the body that was sent: the evidence must be of this request')
    .option(
      '--answer <file>',
      'the answer that came, JSON or a kept stream: the evidence must be of this answer',
    )
    .option('--json', 'print one JSON object')
  addBundleOptions(addGatewayOptions(command))
    .addHelpText('after', HELP)
    .action(async (source: string, options: VerifyOptions) => {
      const { output, isOk } = await verifySource(source, options)
      process.stdout.write(output)
      process.exitCode = isOk ? EXIT_CODES.done : EXIT_CODES.failed
    })
}

const HELP = `
The source is an evidence bundle, a record, a page of the history, or (with --request) an answer or event
stream as it came. With a completion's hash, its bundle is fetched from the gateway at --url, which must give
the one of this hash: anything else is refused.
With --request and --answer, what you sent and got is compared with the evidence; a difference is INVALID.
What was asked and said is printed as the evidence has it, cut to a bounded length and escaped.
What is not said is not checked, and never counts as passed: expected measurements (--release with
--release-key, or --pcr), the expected boot configuration (--configuration), the chain (--rpc). A bundle's
attestation document is always verified, under AWS's root or --root; a record's when --release, --pcr,
--any-measurement or --root is given. Both at its own time, with which releases are compared, too.
An answer that was cut (outcome client_disconnected or upstream_error) is CONSISTENT at best, unless
--allow-outcome names its outcome.
Exit codes: 0 nothing failed, 1 a check failed (or less than --require), the gateway gave other evidence or there
was nothing to check, 2 usage.`

type Outcome = { readonly output: string; readonly isOk: boolean }

async function verifySource(source: string, options: VerifyOptions): Promise<Outcome> {
  // Before anything is fetched: what is wrong with the command is told first.
  const expected = await readAttestationPolicy(options)
  const policy = await completeBundlePolicy(expected, options)
  const lists = await readRevocationLists(options, Date.now())
  const hash = isHash(source) ? hashOf(source) : null
  const place = hash === null ? source : evidenceUrl(hash, options)
  // The environment is looked at for a URL alone: a file needs no key, and no complaint about one.
  const key = isUrl(place) ? chooseKey(place, options) : NO_KEY
  const files = await readKeptFiles(source, options)
  const bytes = await readSource(place, { ...key, stdin: process.stdin })
  if (hash !== null) checkAskedFor(hash, readBundle(bytes, "the gateway's answer"))
  const input = readInput(bytes, files.requestBody)
  const isOfOne = input.kind === 'bundle' || input.subjects.length === 1
  const verifier = createListingVerifier(createAttestationVerifier(), lists, { isOfOne })
  switch (input.kind) {
    case 'bundle':
      return await reportBundle(input.bundle, { policy, verifier, kept: keptOf(files) }, options)
    case 'records':
      return await reportRecords(input.subjects, { expected, verifier, files }, options)
  }
}

const NO_KEY = { apiKey: null } as const

/**
 * A gateway may answer with evidence of anything. Its own checks will show that its hash is of its
 * request and response.
 */
function checkAskedFor(hash: string, { record }: EvidenceBundle): void {
  if (record.hash !== hash)
    throw new CliError(`expected the evidence of ${hash}, got that of another completion, ${record.hash}`)
}

async function reportBundle(
  given: JsonObject,
  demands: {
    readonly policy: BundlePolicy
    readonly verifier: ListingVerifier
    readonly kept: KeptExchange
  },
  options: VerifyOptions,
): Promise<Outcome> {
  if (options.confirmations !== undefined && options.rpc === undefined)
    throw new CliError('expected --rpc with --confirmations: only a chain can tell', EXIT_CODES.usage)
  const { policy, verifier, kept } = demands
  const record = memberOf(given, 'record')
  const bundle = isJsonObject(record) ? { ...given, record: fillRecord(record, kept) } : given
  const chain = options.rpc === undefined ? null : await fetchChainFacts(options.rpc, blockNumberOf(bundle))
  const report: BundleReport = await verifyBundle(bundle, policy, {
    attestations: verifier,
    ...(chain === null ? {} : { chain }),
  })
  const exchange = compareKept(isJsonObject(record) ? record : {}, kept)
  return {
    output: options.json
      ? printBundleJson(report, { exchange, required: options.require })
      : printBundleText(report, exchange),
    isOk: isAccepted(report, { exchange, required: options.require }),
  }
}

/** The number that the bundle claims, to be looked up; null when there is none, which its checks will tell. */
function blockNumberOf(bundle: JsonObject): number | null {
  try {
    return parseEvidenceBundle(bundle).block?.number ?? null
  } catch {
    return null
  }
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
