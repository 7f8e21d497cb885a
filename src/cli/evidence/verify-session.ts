import { stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { conclude, saySentence } from '../../../attestation/report/conclude.ts'
import type { EvidenceJudgement } from '../../../attestation/report/judge-evidence.ts'
import { printable } from '../../../attestation/report/printable.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { isUrl, readSource } from '../files.ts'
import { printableJson } from '../printable.ts'
import type { KeptOptions } from './kept-exchange.ts'
import type { SavedSession, SessionCall } from './session.ts'

/** The output of `verify`, and its exit code. */
export type VerifyOutcome = {
  readonly output: string
  /** Why the chain could not be asked. Null if it was asked or was not needed. */
  readonly warning: string | null
  readonly exitCode: number
}

/** The result for one file, with `warning` as in VerifyOutcome. */
export type Judged = {
  readonly judged: EvidenceJudgement
  readonly warning: string | null
}

type SessionOptions = KeptOptions & {
  readonly json?: boolean
  readonly require?: 'verified'
}

/** Returns true if a verdict is good enough for the user's options. */
export function isEnough(
  verdict: EvidenceJudgement['verdict'],
  { require }: Pick<SessionOptions, 'require'>,
): boolean {
  return require === undefined ? verdict !== 'invalid' : verdict === require
}

/**
 * Returns the exit code of a finished check. If the wanted chain could not be asked, a good result
 * does not count.
 */
export function exitCodeOf(isOk: boolean, warning: string | null): number {
  if (isOk && warning !== null) return EXIT_CODES.unavailable
  return EXIT_CODES[isOk ? 'done' : 'failed']
}

/** A proof that a session names. `missing`: the proof's file cannot be read. */
type SessionProof = {
  readonly call: SessionCall
  readonly verdict: EvidenceJudgement['verdict'] | 'missing'
  readonly isUndetermined: boolean
  readonly headline: string
  readonly sentence: string
  /** The model of the proof. Null if it is not known. */
  readonly model: string | null
}

/**
 * Checks the proofs of a session's checked calls. The proofs are in files beside the session file.
 * The verdict is that of the worst proof, or `missing`. Rejects with CliError.
 */
export async function verifyProxySession(
  { calls, isCut }: SavedSession,
  given: {
    readonly source: string
    readonly options: SessionOptions
    readonly judgeFile: (bytes: Uint8Array) => Promise<Judged>
  },
): Promise<VerifyOutcome> {
  const { source, options, judgeFile } = given
  if (options.request !== undefined || options.answer !== undefined)
    throw new CliError(
      'expected no --request and no --answer: each proof of a session has its own',
      EXIT_CODES.usage,
    )
  if (source === '-' || isUrl(source))
    throw new CliError(
      'expected the session as a file: its proofs are read from the folder that it is in',
      EXIT_CODES.usage,
    )
  const checked = new Map(calls.map((call) => [call.hash, call]))
  checked.delete(null)
  if (checked.size === 0)
    throw new CliError('the session has no checked call: there is nothing to verify')
  const proofs: SessionProof[] = []
  let warning: string | null = null
  for (const call of checked.values()) {
    const proof = await verifyProof(call, join(dirname(source), `${call.hash}.json`), judgeFile)
    warning ??= proof.warning
    proofs.push(proof)
  }
  const verdict = SEVERITY.find((worst) => proofs.some((proof) => proof.verdict === worst))
  const isMissing = verdict === 'missing' || verdict === undefined
  const isOk = !isMissing && isEnough(verdict, options)
  const print = options.json ? sessionJson : sessionText
  return {
    output: print({ proofs, calls, isCut, isOk, verdict: verdict ?? 'missing' }),
    warning,
    exitCode: isMissing ? EXIT_CODES.unavailable : exitCodeOf(isOk, warning),
  }
}

/** Verdicts, sorted from the worst to the best. */
const SEVERITY = ['invalid', 'missing', 'consistent', 'verified'] as const

async function verifyProof(
  call: SessionCall,
  path: string,
  judgeFile: (bytes: Uint8Array) => Promise<Judged>,
): Promise<SessionProof & { readonly warning: string | null }> {
  const asInvalid = (headline: string) => ({
    call,
    verdict: 'invalid' as const,
    isUndetermined: false,
    headline,
    sentence: 'Do not rely on this: the file is not the proof that the session names.',
    model: null,
    warning: null,
  })
  try {
    const isFile = await stat(path).then(
      (found) => found.isFile() || found.isDirectory(),
      () => true,
    )
    if (!isFile) throw new CliError(`${printable(path)} is not a file`, EXIT_CODES.unavailable)
    const { judged, warning } = await judgeFile(await readSource(path))
    const conclusion = conclude(judged)
    const { verdict, standing, headline } = conclusion
    const hash = hashIn(judged)
    if (verdict !== 'invalid' && hash !== call.hash)
      return asInvalid(`INVALID: the file is the proof of another call, ${printable(hash ?? '-')}.`)
    const model = judged.kind === 'bundle' ? (judged.report.facts?.model.requested ?? null) : null
    return {
      call,
      verdict,
      isUndetermined: standing === 'undetermined',
      headline,
      sentence: saySentence(conclusion),
      model,
      warning,
    }
  } catch (fault) {
    if (!(fault instanceof CliError)) throw fault
    if (fault.exitCode !== EXIT_CODES.unavailable) return asInvalid(`INVALID: ${fault.message}`)
    const sentence = 'This call was not checked.'
    return {
      call,
      verdict: 'missing',
      isUndetermined: false,
      headline: `MISSING: ${fault.message}`,
      sentence,
      model: null,
      warning: null,
    }
  }
}

function hashIn(judged: EvidenceJudgement): string | null {
  switch (judged.kind) {
    case 'bundle':
      return judged.report.facts?.hash ?? null
    case 'records':
      return judged.records[0]?.hash ?? null
    case 'session':
      return null
  }
}

type SessionReport = {
  readonly proofs: readonly SessionProof[]
  readonly calls: readonly SessionCall[]
  readonly isCut: boolean
  readonly isOk: boolean
  readonly verdict: SessionProof['verdict']
}

function sessionText({ proofs, calls, isCut, verdict }: SessionReport): string {
  const worst = proofs.filter((proof) => proof.verdict === verdict)
  const word = worst.every((proof) => proof.isUndetermined) ? 'not determined' : verdict
  const others = calls.filter(({ hash }) => hash === null)
  const refused = others.filter((call) => call.verdict === 'refused').length
  return [
    `${word.toUpperCase()}: ${worst.length} of ${proofs.length} proofs of this session.`,
    '',
    ...proofs.flatMap(({ call, headline, sentence, model }) => [
      [call.hash, ...(model === null ? [] : [printable(model)])].join('  '),
      `  ${headline}`,
      `  ${sentence}`,
    ]),
    '',
    `Calls without a proof: ${others.length}, of which the proxy refused ${refused}.`,
    ...(isCut ? ['The last line of the session file is not complete, and was left out.'] : []),
    'The list of calls is not signed: a call that was left out of it is not shown.',
    '',
  ].join('\n')
}

function sessionJson({ proofs, calls, isCut, isOk, verdict }: SessionReport): string {
  const session = proofs.map(({ call, verdict, headline, sentence, model }) => ({
    hash: call.hash,
    verdict,
    conclusion: headline,
    sentence,
    model,
    // These values are claims, because the session file is not signed.
    listed: { at: call.at, model: call.model },
  }))
  const refused = calls.filter((call) => call.verdict === 'refused')
  return `${printableJson({ ok: isOk, verdict, isCut, session, refused })}\n`
}
