import type { BundleFacts } from '../evidence/bundle-checks.ts'
import { isRefused, type Verdict } from '../evidence/verdict.ts'
import type { Check } from '../finding.ts'
import { nameRelease } from '../release/release-name.ts'
import type { SessionReport } from '../session/verify-session.ts'
import { DEVELOPMENT_ROOTS } from './describe-provider.ts'
import { hasKnownCode, openOfEnclave } from './enclave-code.ts'
import type { BundleJudgement } from './judge-bundle.ts'
import type { EvidenceFindings, EvidenceJudgement } from './judge-evidence.ts'
import type { Signed, SubjectReport } from './judge-record.ts'
import { isoOf, printable, quoted } from './printable.ts'
import { sayVerdict } from './say-verdict.ts'
import { OTHER_ROOT } from './unknown-root.ts'

/** The result for evidence of any kind, in words. All programs use the same words. */
export type Conclusion = {
  readonly verdict: Verdict
  /** `VERIFIED`, `INCOMPLETE`, `NOT ACCEPTED` or `INVALID`, and the reason, on one line. */
  readonly headline: string
  /** The result for a reader who is not an engineer: who signed what, and when. */
  readonly finding: string
  /** Says that the reader accepts a root that is not AWS's. Null if not, or without a result. */
  readonly caution: string | null
  /** Facts that are not proved, as clauses for people. Empty if all facts are proved. */
  readonly notShown: readonly string[]
}

/** Describes a judgement in words. Escapes text from the evidence. */
export function conclude(judged: EvidenceJudgement): Conclusion {
  const found = concludeFindings(judged)
  const hasResult = !isRefused(found.verdict)
  return { ...found, caution: hasResult && judged.hasOtherRoot ? OTHER_ROOT : null }
}

/** Without the caution, which is the same for all kinds. */
type Found = Omit<Conclusion, 'caution'>

function concludeFindings(judged: EvidenceFindings): Found {
  switch (judged.kind) {
    case 'bundle':
      return concludeBundle(judged)
    case 'records':
      return concludeRecords(judged)
    case 'session':
      return concludeSession(judged)
  }
}

export function saySentence({ finding, caution, notShown }: Conclusion): string {
  return [
    finding,
    ...(caution === null ? [] : [caution]),
    ...(notShown.length === 0 ? [] : [`Not shown: ${notShown.join('; ')}.`]),
  ].join(' ')
}

function concludeBundle(judged: BundleJudgement): Found {
  const { verdict, report, differences, comparison } = judged
  const { checks, facts, open } = report
  if (!isRefused(report.verdict) && differences.length > 0)
    return {
      verdict,
      headline: `INVALID: failed at ${differences.join(', ')}.`,
      finding: sayDifference(comparison),
      notShown: [],
    }
  const named = (outcome: string) =>
    checks.filter((check) => check.outcome === outcome).map(({ name }) => name)
  const headline = sayVerdict(verdict, {
    failed: failedOf(checks),
    open: verdict === 'verified' ? named('not checked') : open,
  })
  if (isRefused(verdict) || facts === null) return refuted(verdict, headline, checks)
  return {
    verdict,
    headline,
    finding: `${saySigned(facts, open)} ${sayAnswered(facts)}`,
    notShown: listNotShown(open, [facts]),
  }
}

function concludeRecords({
  verdict,
  records,
}: Extract<EvidenceFindings, { kind: 'records' }>): Found {
  const checks = records.flatMap((record) => record.checks)
  const bad = records.filter(({ ok }) => !ok)
  const failed = failedOf(checks)
  const open = records.flatMap(openOf)
  const [record] = records
  const isOne = records.length === 1 && record !== undefined
  const where = isOne ? '' : ` in ${bad.length || 'any'} of ${records.length} records`
  const headline = sayVerdict(verdict, { failed, open, where })
  if (isRefused(verdict)) return refuted(verdict, headline, checks)
  const signed = records.flatMap((one) => one.signed ?? [])
  const [only] = isOne ? signed : []
  return {
    verdict,
    headline,
    finding:
      only === undefined
        ? `Nothing was found to be changed.${sayCut(signed)}${sayDebug(signed)}`
        : saySigned(only, open),
    notShown: listNotShown(open, signed),
  }
}

function concludeSession({ verdict, checks, open, calls, id }: SessionReport): Found {
  const ofCalls = calls.flatMap(({ report }) => failedOf(report.checks))
  const own = failedOf(checks)
  const isOfCalls = own.every(({ name }) => name === 'evidence of calls')
  const failed = verdict === 'not_accepted' && isOfCalls ? ofCalls : own
  const headline = sayVerdict(verdict, { failed, open })
  if (isRefused(verdict)) return refuted(verdict, headline, isOfCalls ? [...own, ...ofCalls] : own)
  const { size: notaries } = new Set(calls.map(({ report }) => report.facts?.notary))
  const signers = notaries === 1 ? 'one notary' : `${notaries} notaries`
  const ofSession = id === null || open.includes('one session') ? '' : ' of one session'
  const openOfCalls = calls.flatMap(({ report }) => report.open)
  const facts = calls.flatMap(({ report }) => report.facts ?? [])
  const openOfSession = open.filter((name) => name !== 'evidence of calls')
  return {
    verdict,
    headline,
    finding:
      `These are ${calls.length} calls${ofSession}, signed by ${signers}, ` +
      `and none was changed since.${sayCut(facts)}${sayDebug(facts)}`,
    notShown: [
      ...listNotShown([...openOfCalls, ...openOfSession], facts),
      ...(id === null ? [] : NOT_SHOWN_OF_SESSIONS),
    ],
  }
}

const NOT_SHOWN_OF_SESSIONS = [
  'what a tool did: its answer is what the caller sent',
  'calls that the caller made outside of the session',
]

function refuted(verdict: Verdict, headline: string, checks: readonly Check<string>[]): Found {
  return {
    verdict,
    headline,
    finding:
      verdict === 'invalid'
        ? `Do not rely on this: it was changed or forged.${sayCall(checks)}${sayCause(checks)}`
        : 'Nothing was found to be changed, but do not rely on this: you do not accept who signed it.',
    notShown: [],
  }
}

/** Empty unless calls of a file failed. */
function sayCall(checks: readonly Check<string>[]): string {
  const found = failedOf(checks).find(({ name }) => name === 'evidence of calls')
  return found === undefined
    ? ''
    : ` In this file, ${printable(found.detail).replace(/^[a-z_]+: /, '')}.`
}

/** What a failed check says of a text. A changed text also makes later checks fail. */
const CHANGED_TEXTS: Readonly<Record<string, string>> = {
  'request hash': 'The question in this file is not the one that was signed.',
  'response hash': 'The answer in this file is not the one that was signed.',
  'stream hash': 'The stream in this file is not the one that was signed.',
}
const ASK_FOR_COPY =
  'A file has only the hash of what was signed. To see the signed text, ask for another copy, for ' +
  "the gateway's record, or for a later call of the session, which repeats it."

/** Empty if no text was changed, or if the form of the file does not show one. */
function sayCause(checks: readonly Check<string>[]): string {
  const changed = failedOf(checks).flatMap(({ name }) => CHANGED_TEXTS[name] ?? [])
  return changed.length === 0 ? '' : ` ${[...new Set(changed), ASK_FOR_COPY].join(' ')}`
}

/** The evidence holds, but it is not that of a text which the reader kept. */
function sayDifference(comparison: BundleJudgement['comparison']): string {
  const texts = failedOf(comparison).flatMap(({ name }) =>
    name === 'request given' ? ['question'] : name === 'answer given' ? ['answer'] : [],
  )
  return texts.length === 0
    ? 'Nothing in this file was changed, but the answer that you kept has the proof of another call.'
    : `Nothing in this file was changed, but the ${texts.join(' and the ')} that you kept ` +
        `${texts.length === 1 ? 'is not the one' : 'are not those'} that was signed. Both are shown below.`
}

function failedOf<Name extends string>(checks: readonly Check<Name>[]): readonly Check<Name>[] {
  return checks.filter(({ outcome }) => outcome === 'failed')
}

/** Returns the names of the record's checks that were not made. */
function openOf({ holder, doubts }: SubjectReport): readonly string[] {
  const code = holder === null ? ['attestation document', 'measurements'] : []
  return [
    ...doubts.flatMap((doubt) => {
      if (doubt.kind === 'cut') return ['outcome']
      return doubt.kind === 'not in log'
        ? ['receipt in log']
        : doubt.parts.map((part) => `${part} hash`)
    }),
    ...code,
    ...openOfEnclave(holder),
    'anchor',
  ]
}

/**
 * A cut answer stays without its end, also if the reader accepts the cut. Code stays unknown if the
 * reader expects other registers alone.
 */
function listNotShown(open: readonly string[], answers: readonly SignedBy[]): readonly string[] {
  const all = [
    ...open,
    ...(answers.some(isCut) ? ['outcome'] : []),
    ...(answers.every(hasKnownCode) ? [] : ['measurements']),
  ]
  return [...new Set(all.map((name) => PLAIN_WORDS[name] ?? name)), 'that the answer is true']
}

type SignedBy = Pick<Signed, 'outcome' | 'release' | 'matchedRegisters' | 'isDebugMode'>

function isCut({ outcome }: SignedBy): boolean {
  return outcome !== 'complete'
}

/** Empty if no enclave ran in debug mode. */
function sayDebug(answers: readonly SignedBy[]): string {
  return answers.some(({ isDebugMode }) => isDebugMode) ? ` ${DEBUG_MODE}` : ''
}

const DEBUG_MODE =
  'The enclave ran in debug mode: its host could read its key, and its code is not known.'

/** Empty if no answer was cut. */
function sayCut(answers: readonly SignedBy[]): string {
  const cut = answers.filter(isCut).length
  if (cut === 0) return ''
  if (answers.length === 1) return ' The answer was cut, and its end is not shown.'
  return ` Of ${answers.length} answers, ${cut} ${cut === 1 ? 'was' : 'were'} cut: what is missing is not shown.`
}

function saySigned(signed: Signed, open: readonly string[]): string {
  const { notary, finishedAt } = signed
  const who = open.includes('measurements') ? `The account ${notary}` : sayEnclave(signed)
  const time = finishedAt === null ? '' : ` The enclave's clock said ${timeOf(finishedAt)}.`
  const answer = isCut(signed) ? 'the received part of this answer' : 'this answer'
  return (
    `${who} signed this question and ${answer}, and neither was changed since.${time}` +
    `${sayCut([signed])}${sayDebug([signed])}`
  )
}

function sayEnclave({ release, matchedRegisters }: Signed): string {
  if (release !== null) return `An enclave that runs ${printable(nameRelease(release))}`
  if (matchedRegisters.includes(0)) return 'An enclave that runs code that you expect'
  const [one, ...more] = matchedRegisters
  return more.length === 0
    ? `An enclave whose register ${one} is as you expect`
    : `An enclave whose registers ${matchedRegisters.join(', ')} are as you expect`
}

/** Maximum characters of a name within a sentence. */
const NAME_LENGTH_MAX = 80

function sayAnswered({
  provider,
  model,
  block,
  anchoredIn,
  providerEvidence,
}: BundleFacts): string {
  // The provider or the caller chooses these texts.
  const name = quoted(provider.name, NAME_LENGTH_MAX)
  const by = quoted(model.returned ?? model.requested, NAME_LENGTH_MAX)
  const answered = `${name} answered with model ${by}.${sayMachine(providerEvidence)}`
  if (block === null) return `${answered} There is no block yet: the chain has not confirmed this.`
  const said = `Block ${block.number} says ${timeOf(block.timestamp)}`
  return anchoredIn === null
    ? `${answered} ${said}, but was not looked up: the chain has not confirmed this.`
    : `${answered} ${said} and is on the chain that you asked: this was made no later.`
}

function sayMachine(evidence: BundleFacts['providerEvidence']): string {
  if (!evidence?.isAccepted) return ''
  if (evidence.hasReplacedRoots)
    return ` Its machine passes your policy under ${DEVELOPMENT_ROOTS}: neither a real machine nor its weights are proved.`
  const weights = evidence.weights.measured === null ? 'not proved' : 'proved'
  return ` Its machine passes your policy, and its weights are ${weights}.`
}

function timeOf(seconds: number): string {
  return isoOf(seconds * 1000, `${seconds} s`)
    .replace('T', ' ')
    .replace('.000Z', ' UTC')
}

const ANCHORED = 'that the answer was recorded on the chain'
const ALL_CALLS = 'that all calls of the session are here, each once and in order'
const SET_UP = 'that the enclave was set up as you expect'

/** For each check: a clause that says what the check proves. */
const PLAIN_WORDS: Readonly<Record<string, string>> = {
  'request hash': 'what was asked',
  'response hash': 'what was answered',
  'attestation document': 'that an enclave holds the key',
  measurements: 'that the enclave runs code that you expect',
  'boot configuration': SET_UP,
  'expected configuration': SET_UP,
  outcome: 'that the answer is whole',
  "provider's key": "that the provider's machine has the key that answered",
  'provider attested': 'that the provider runs code that you accept',
  'receipt in log': 'that the answer is in the log',
  'transaction hash': ANCHORED,
  anchor: ANCHORED,
  'block header': ANCHORED,
  'anchor time': ANCHORED,
  'transaction in block': ANCHORED,
  'anchor outcome': ANCHORED,
  'block on chain': 'that the block is on the chain',
  'one session': 'that these calls are of one session',
  'none missing': ALL_CALLS,
  'none doubled': ALL_CALLS,
  order: ALL_CALLS,
  'previous hash': ALL_CALLS,
  'other requests': 'that the gateway did not choose among several answers',
  'signed end': 'that no calls came after the last one',
  'answers in requests': 'that each answer in a request is of an earlier call',
}
