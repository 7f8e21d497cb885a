import type { EvidenceBundle } from '../../../attestation/evidence/bundle.ts'
import {
  type EvidenceJudgement,
  type ExpectedEvidence,
  judgeEvidence,
} from '../../../attestation/report/judge-evidence.ts'
import {
  type Evidence,
  EvidenceError,
  type KeptFiles,
  readEvidence,
} from '../../../attestation/report/read-evidence.ts'
import type { ListingVerifier } from '../../../attestation/revocation/listing-verifier.ts'
import {
  bundleOnlyOptions,
  readExpectedEvidence,
  readRevocationLists,
} from '../expected-evidence.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { isUrl, readSource, type SourceOptions } from '../files.ts'
import { type BundleOptions, type GatewayOptions, hashOf, isHash } from '../options.ts'
import { type KeptOptions, openKeptFiles } from './kept-exchange.ts'
import { readBundle, sayEvidenceFault, tellingEvidence } from './read-evidence.ts'
import { printBundleJson, printBundleText } from './verify-bundle.ts'
import { printJson, printText } from './verify-record.ts'

/** What the options say, as commander gives it. */
export type VerifyOptions = BundleOptions &
  GatewayOptions &
  KeptOptions & { readonly json?: boolean }

/** What `verify` prints, and whether it is good enough for an exit code of 0. */
export type Outcome = { readonly output: string; readonly isOk: boolean }

/** Checks what a source has, as the options say. Throws CliError for what is no evidence. */
export async function verifySource(source: string, options: VerifyOptions): Promise<Outcome> {
  // Before anything is fetched: what is wrong with the command is told first.
  const expected = await readExpectedEvidence(options)
  const openVerifier = await readRevocationLists(options, Date.now())
  const hash = isHash(source) ? hashOf(source) : null
  const { place, key } = await locate(source, { hash, options })
  const kept = await openKeptFiles(source, options)
  const bytes = await readSource(place, key)
  if (hash !== null) checkAskedFor(hash, readBundle(bytes, "the gateway's answer"))
  const evidence = tellingEvidence(() => readEvidence(bytes, kept.requestBody, options.idempotent))
  checkOptions(evidence, options)
  const isOfOne = evidence.kind === 'bundle' || evidence.subjects.length === 1
  const verifier = openVerifier({ isOfOne })
  const judged = await judge(evidence, { expected, kept, verifier, rpc: options.rpc })
  const [unused] = isOfOne ? [] : verifier.unused()
  if (unused !== undefined) throw unused
  return printJudgement(judged, options)
}

/** What only the other kind of evidence can be judged by, or only another option gives sense to. */
function checkOptions({ kind }: Evidence, options: VerifyOptions): void {
  const [unfit] = kind === 'bundle' ? [] : bundleOnlyOptions(options)
  if (unfit !== undefined)
    throw new CliError(
      `expected an evidence bundle for ${unfit}: a record does not hold enough`,
      EXIT_CODES.usage,
    )
  if (options.confirmations !== undefined && options.rpc === undefined)
    throw new CliError(
      'expected --rpc with --confirmations: only a chain can tell',
      EXIT_CODES.usage,
    )
}

async function judge(
  evidence: Evidence,
  given: {
    readonly expected: ExpectedEvidence
    readonly kept: KeptFiles
    readonly verifier: ListingVerifier
    readonly rpc: string | undefined
  },
): Promise<EvidenceJudgement> {
  const { rpc, ...demands } = given
  try {
    const askChain = rpc === undefined ? null : askChainAt(rpc)
    return await judgeEvidence(evidence, { ...demands, askChain })
  } catch (fault) {
    throw fault instanceof EvidenceError ? sayEvidenceFault(fault) : fault
  }
}

/** Loaded where it is used: a check without a chain starts in half the time. */
function askChainAt(url: string) {
  return async (blockNumber: number | null) => {
    const { fetchChainFacts } = await import('./chain-facts.ts')
    return await fetchChainFacts(url, blockNumber)
  }
}

function printJudgement(judged: EvidenceJudgement, { json, require }: VerifyOptions): Outcome {
  const { verdict } = judged
  const isOk = require === undefined ? verdict !== 'invalid' : verdict === require
  switch (judged.kind) {
    case 'bundle':
      return { output: json ? printBundleJson(judged, isOk) : printBundleText(judged), isOk }
    case 'records':
      return { output: json ? printJson(judged.records) : printText(judged.records), isOk }
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
