import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { AskChain } from '#attestation/evidence/policy.ts'
import type { Verdict } from '#attestation/evidence/verdict.ts'
import { conclude } from '#attestation/report/conclude.ts'
import { isHtml } from '#attestation/report/evidence-page.ts'
import {
  type EvidenceJudgement,
  type ExpectedEvidence,
  judgeEvidence,
} from '#attestation/report/judge-evidence.ts'
import { printable } from '#attestation/report/printable.ts'
import {
  type Evidence,
  EvidenceError,
  type KeptFiles,
  readEvidence,
} from '#attestation/report/read-evidence.ts'
import { VERDICT_WORDS } from '#attestation/report/say-verdict.ts'
import type { ListingVerifier } from '#attestation/revocation/listing-verifier.ts'
import { readExpectedEvidence, readRevocationLists } from '../expected-evidence.ts'
import { CliError, EXIT_CODES, exitCodeOf, worstOf } from '../faults.ts'
import { isUrl, listFiles, readSource, type SourceOptions } from '../files.ts'
import { type BundleOptions, type GatewayAccessOptions, hashOf, isHash } from '../options.ts'
import { sayPage } from './evidence-page.ts'
import { type KeptOptions, openKeptFiles } from './kept-exchange.ts'
import { printJson, printText } from './print-judgement.ts'
import { readCall, sayEvidenceFault, sayPublic, withEvidenceErrors } from './read-evidence.ts'

export type VerifyOptions = BundleOptions &
  GatewayAccessOptions &
  KeptOptions & { readonly json?: boolean }

type VerifyOutcome = {
  readonly output: string
  readonly headline: string
  readonly verdict: Verdict
  readonly warning: string | null
  readonly exitCode: number
}

/** `unreached`: why the chain could not be asked, otherwise null. */
type Judged = { readonly judged: EvidenceJudgement; readonly unreached: CliError | null }

/**
 * Prints each result. A folder stands for its files. If there are several sources, prints the
 * source's name above each result, and at the end a line for each source, and one for all. Returns
 * the exit code of the worst result. If a source is not evidence, throws CliError after the other
 * sources were checked.
 */
export async function verifySources(
  given: readonly string[],
  options: VerifyOptions,
): Promise<number> {
  const sources = await listFiles(given)
  const isOne = sources.length === 1
  if (!isOne && (options.request !== undefined || options.answer !== undefined))
    throw new CliError('expected one source with --request and --answer', EXIT_CODES.usage)
  const codes: number[] = []
  const lines: string[] = []
  const counts = new Map<string, number>()
  const add = (source: string, headline: string, counted: string): void => {
    lines.push(`${printable(source)}  ${headline}\n`)
    counts.set(counted, (counts.get(counted) ?? 0) + 1)
  }
  for (const source of sources)
    try {
      const { output, warning, exitCode, headline, verdict } = await verifySource(source, options)
      process.stdout.write(isOne ? output : `${printable(source)}\n${output}\n`)
      if (warning !== null) process.stderr.write(`${warning}; the rest was checked\n`)
      codes.push(exitCode)
      add(source, headline, VERDICT_WORDS[verdict])
    } catch (fault) {
      if (isOne || !(fault instanceof CliError)) throw fault
      process.stderr.write(`${printable(source)}: ${fault.message}\n`)
      codes.push(fault.exitCode)
      add(source, `not checked: ${fault.message}`, 'not checked')
    }
  if (!isOne && options.json !== true) {
    const all = [...counts].map(([word, count]) => `${count} ${word}`).join(', ')
    process.stdout.write(`${lines.join('')}${sources.length} files: ${all}\n`)
  }
  return worstOf(codes)
}

/** Throws CliError if the source is not evidence. */
export async function verifySource(source: string, options: VerifyOptions): Promise<VerifyOutcome> {
  // A fault in the command is reported before anything is fetched.
  if (options.confirmations !== undefined && options.rpc === undefined)
    throw new CliError(
      'expected --rpc with --confirmations: only the chain shows how deep a block is',
      EXIT_CODES.usage,
    )
  const expected = await readExpectedEvidence(options)
  const openVerifier = await readRevocationLists(options, Date.now())
  const hash = isHash(source) ? hashOf(source) : null
  const { place, key } = await locate(source, { hash, options })
  const kept = await openKeptFiles(source, options)
  const bytes = await readSource(place, key)
  if (hash !== null) checkAskedFor(hash, readCall(bytes, "the gateway's answer"))
  if (hash !== null && key.apiKey === null) process.stderr.write(sayPublic(key))
  const evidence = withEvidenceErrors(() =>
    readEvidence(bytes, kept.requestBody, options.idempotent),
  )
  if (isHtml(bytes)) process.stderr.write(sayPage(bytes))
  const isOfOne =
    evidence.kind === 'bundle' || (evidence.kind === 'records' && evidence.subjects.length === 1)
  const verifier = openVerifier({ isOfOne })
  const { judged, unreached } = await judge(evidence, {
    expected,
    kept,
    verifier,
    rpc: options.rpc,
  })
  if (!isOfOne) checkAllUsed(verifier)
  const { verdict } = judged
  const isOk = verdict === 'verified'
  return {
    output: options.json ? printJson(judged, isOk) : printText(judged, source),
    headline: conclude(judged).headline,
    verdict,
    warning: unreached?.message ?? null,
    exitCode: worstOf([exitCodeOf(verdict), unreached?.exitCode ?? EXIT_CODES.done]),
  }
}

/** Throws if a revocation list applies to none of the documents. */
function checkAllUsed(verifier: ListingVerifier): void {
  const [unused] = verifier.unused()
  if (unused !== undefined) throw unused
}

/** Checks the evidence, without the chain if the endpoint does not answer. */
async function judge(
  evidence: Evidence,
  given: {
    readonly expected: ExpectedEvidence
    readonly kept: KeptFiles
    readonly verifier: ListingVerifier
    readonly rpc: string | undefined
  },
): Promise<Judged> {
  const { rpc, ...demands } = given
  const judgeBy = async (askChain: AskChain | null) => {
    try {
      return await judgeEvidence(evidence, { ...demands, askChain })
    } catch (fault) {
      throw fault instanceof EvidenceError ? sayEvidenceFault(fault) : fault
    }
  }
  if (rpc === undefined) return { judged: await judgeBy(null), unreached: null }
  // The module is loaded only when needed, so other checks start in half the time.
  const { ChainUnreached, reachChainFacts } = await import('./chain-facts.ts')
  try {
    return { judged: await judgeBy((blocks) => reachChainFacts(rpc, blocks)), unreached: null }
  } catch (fault) {
    if (!(fault instanceof ChainUnreached)) throw fault
    return { judged: await judgeBy(null), unreached: fault }
  }
}

/** The environment is read only for a URL, because a file needs no key. */
async function locate(
  source: string,
  { hash, options }: { readonly hash: string | null; readonly options: VerifyOptions },
): Promise<{ readonly place: string; readonly key: SourceOptions }> {
  if (hash === null && !isUrl(source)) return { place: source, key: {} }
  const { chooseKey, evidenceSource } = await import('../gateway-access.ts')
  if (hash === null) return { place: source, key: chooseKey(source, options) }
  const { url, access } = evidenceSource(hash, options)
  return { place: url, key: access }
}

/**
 * Throws if the gateway answered with the evidence of another completion. Other checks bind the
 * evidence's hash to its request and response.
 */
function checkAskedFor(hash: string, { record }: EvidenceBundle): void {
  if (record.hash !== hash)
    throw new CliError(
      `expected the evidence of ${hash}, got the evidence of another completion, ${record.hash}`,
    )
}
