import type { ComponentChildren } from 'preact'
import { encodeHex } from '#attestation/bytes.ts'
import type { BundleFacts } from '#attestation/evidence/bundle-checks.ts'
import { conclude } from '#attestation/report/conclude.ts'
import { openOfEnclave } from '#attestation/report/enclave-code.ts'
import type { BundleJudgement } from '#attestation/report/judge-bundle.ts'
import type { EvidenceJudgement } from '#attestation/report/judge-evidence.ts'
import type { Doubt, SubjectReport } from '#attestation/report/judge-record.ts'
import { beginSentence, sayAbsence } from '#attestation/report/say-absence.ts'
import { adviseOnSource, saySource } from '#attestation/report/say-source.ts'
import {
  linesOf,
  type ShownExchange,
  type ShownMessage,
} from '#attestation/report/shown-exchange.ts'
import { Exchange } from '../kit/exchange.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { Hex, Time } from '../kit/values.tsx'
import { ChainPicture } from './chain-picture.tsx'
import type { Expected, JobOutcome } from './job.ts'
import { missingOfCode } from './link-states.ts'
import { ProviderChain } from './provider-chain.tsx'
import { hasProviderChain, isProviderCheck } from './provider-links.ts'
import { ReleaseLabel } from './release-name.tsx'
import { SessionReportView } from './session-report.tsx'
import { VerdictHeading } from './verdict.tsx'

/** The report on a bundle, on records, or on a session. */
export function EvidenceReport({
  judged,
  expected,
  explorer,
  children,
}: {
  readonly judged: Extract<JobOutcome, { kind: 'evidence' }>['judged']
  readonly expected: Expected
  /** Base URL of a block explorer. Empty for a report without links to an explorer. */
  readonly explorer: string
  /** Shown under the verdict. */
  readonly children?: ComponentChildren
}) {
  const { verdict, headline, finding, notShown } = conclude(judged)
  const isMarked = expected.isDevelopment || verdict === 'not_accepted'
  const exchange = exchangeOf(judged)
  return (
    <>
      <VerdictHeading
        verdict={verdict}
        isDevelopment={expected.isDevelopment}
        sentence={finding}
        headline={headline}
      >
        {exchange !== null && <Gist exchange={exchange} />}
        {verdict === 'not_accepted' && (
          <p>
            Does this come from a development enclave? Its root is in{' '}
            <code>DATA_DIR/nsm/root.crt.pem</code>: give it under “Your policy”, “Roots”.
          </p>
        )}
      </VerdictHeading>
      {children}
      {judged.kind === 'bundle' && (
        <BundleReportView judged={judged} explorer={explorer} isMarked={isMarked} />
      )}
      {judged.kind === 'records' && <RecordsReport records={judged.records} isMarked={isMarked} />}
      {judged.kind === 'session' && <SessionReportView report={judged} isMarked={isMarked} />}
      {notShown.length > 0 && (
        <section aria-labelledby="not-shown">
          <h2 id="not-shown">What this does not show</h2>
          <ul>
            {[...notShown, ...adviceOf(judged, expected)].map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </section>
      )}
      {expected.releases.map((line) => (
        <p class="faint" key={line}>
          Expected: <OutsideText text={line} isOneLine={true} shownMax={500} />
        </p>
      ))}
    </>
  )
}

/** Null for several calls. */
function exchangeOf(judged: EvidenceJudgement): ShownExchange | null {
  if (judged.kind === 'bundle') return judged.exchange
  const [record, another] = judged.kind === 'records' ? judged.records : []
  return record === undefined || another !== undefined ? null : record.exchange
}

/** Characters of a question or answer under the verdict. */
const GIST_LENGTH_MAX = 160

/** The beginning of the question and answer that the verdict is about. */
function Gist({ exchange: { asked, said } }: { readonly exchange: ShownExchange }) {
  const question = asked?.findLast(({ who }) => who === 'user') ?? null
  const answer = said?.find(({ who }) => who !== 'thinks') ?? said?.[0] ?? null
  if (question === null && answer === null) return null
  return (
    <dl class="pairs gist">
      {question !== null && <GistLine name="Asked" message={question} />}
      {answer !== null && <GistLine name="Answered" message={answer} />}
    </dl>
  )
}

function GistLine({ name, message }: { readonly name: string; readonly message: ShownMessage }) {
  const [line = ''] = linesOf(message).lines.filter((one) => one.trim() !== '')
  const isCut = line.length > GIST_LENGTH_MAX
  return (
    <>
      <dt>{name}</dt>
      <dd>
        <bdi class="outside">{isCut ? `${line.slice(0, GIST_LENGTH_MAX)}…` : line}</bdi>
      </dd>
    </>
  )
}

function BundleReportView({
  judged,
  explorer,
  isMarked,
}: {
  readonly judged: BundleJudgement
  readonly explorer: string
  readonly isMarked: boolean
}) {
  const { report, comparison } = judged
  const { facts, source } = report
  const checks = [...report.checks, ...comparison]
  return (
    <>
      <Exchange exchange={judged.exchange} />
      <Exchange exchange={judged.differing} whose=", as you kept it" />
      <h2>Each link, from request to block</h2>
      <ChainPicture
        checks={checks.filter(({ name }) => !isProviderCheck(name))}
        missing={missingOfCode(facts)}
        facts={facts === null ? {} : factsOfBundle(facts, explorer)}
        isDevelopment={isMarked}
      />
      {hasProviderChain(report) && (
        <ProviderChain report={{ ...report, checks }} isDevelopment={isMarked} />
      )}
      {facts !== null && source !== null && (
        <p>
          This evidence says it is from <OneLine text={saySource(source)} />: a hint, not checked.{' '}
          <OneLine text={adviseOnSource(judged) ?? ''} />
        </p>
      )}
    </>
  )
}

/** Advice about what the evidence does not prove. */
function adviceOf(judged: EvidenceJudgement, expected: Expected): readonly string[] {
  if (judged.kind === 'records')
    return [
      ...new Set(judged.records.flatMap(({ doubts }) => doubts.map(sayDoubt))),
      'A record has no boot configuration and no anchor. The evidence of this completion has both.',
    ]
  const facts =
    judged.kind === 'bundle' ? judged.report.facts : (judged.calls[0]?.report.facts ?? null)
  if (facts === null || expected.code) return []
  const pcr0 = encodeHex(facts.measurements.get(0) ?? new Uint8Array())
  return [
    `You did not say which code you expect. The PCR0 of this code is ${pcr0}. Anyone can run an enclave with their own code.`,
  ]
}

/** The text is untrusted, so it is never shown as a link. */
function OneLine({ text }: { readonly text: string }) {
  return <OutsideText text={text} isOneLine={true} shownMax={2_000} />
}

function factsOfBundle(facts: BundleFacts, explorer: string) {
  const { provider, model, block, anchoredIn, release } = facts
  return {
    request: (
      <p>
        Asked of <OutsideText text={provider.name} isOneLine={true} shownMax={200} /> at{' '}
        <OutsideText text={provider.origin} isOneLine={true} shownMax={300} />, model{' '}
        <OutsideText text={model.requested} isOneLine={true} shownMax={200} />
        {model.returned === null ? (
          '; the answer names no model'
        ) : (
          <>
            , answered as <OutsideText text={model.returned} isOneLine={true} shownMax={200} />
          </>
        )}
        . Outcome: {facts.outcome}.
      </p>
    ),
    hash: (
      <p>
        <Hex value={facts.hash} digits={64} />
      </p>
    ),
    notary: (
      <p>
        The notary is <Hex value={facts.notary} digits={40} />.
      </p>
    ),
    code: (
      <>
        {release !== null && (
          <p>
            <ReleaseLabel release={release} />.
          </p>
        )}
        <dl class="pairs">
          {[...facts.measurements]
            .filter(([index]) => index <= 2)
            .map(([index, pcr]) => (
              <Pair key={index} name={`PCR${index}`} value={encodeHex(pcr)} />
            ))}
          <Pair name="Configuration" value={encodeHex(facts.configuration)} />
        </dl>
      </>
    ),
    log: (
      <p>
        Entry {facts.index} of the log of <Hex value={facts.notary} />, finished{' '}
        <Time ms={facts.finishedAt * 1000} /> by the enclave’s clock.
      </p>
    ),
    block: (
      <>
        {block === null ? (
          <p>The evidence has no block, so the time of the anchor is not shown.</p>
        ) : (
          <p>
            Block {block.number} <Hex value={block.hash} />, made{' '}
            <Time ms={block.timestamp * 1000} /> by its own word.{' '}
            {anchoredIn === null
              ? 'Whether the chain has this block was not looked up.'
              : 'The chain has this block: the answer is not younger.'}
          </p>
        )}
        {block !== null && explorer !== '' && (
          <p>
            <a href={`${explorer}/block/${block.number}`} target="_blank" rel="noreferrer">
              Open this block in the explorer that you named
            </a>
          </p>
        )}
      </>
    ),
  }
}

function Pair({ name, value }: { readonly name: string; readonly value: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>
        <Hex value={value} />
      </dd>
    </>
  )
}

/** Further records are only counted. */
const RECORDS_SHOWN = 20

function RecordsReport({
  records,
  isMarked,
}: {
  readonly records: readonly SubjectReport[]
  readonly isMarked: boolean
}) {
  // Failed records come first, so that the reader sees them at once.
  const sorted = records.toSorted((one, other) => Number(one.ok) - Number(other.ok))
  const shown = sorted.slice(0, RECORDS_SHOWN)
  return (
    <>
      {shown.map((record, at) => (
        <section key={at}>
          {records.length > 1 && (
            <h2>
              Record{' '}
              <OutsideText text={record.hash ?? 'without hash'} isOneLine={true} shownMax={80} />
            </h2>
          )}
          <Exchange exchange={record.exchange} />
          {records.length === 1 && <h2>Each link, from request to block</h2>}
          <ChainPicture
            checks={record.checks}
            missing={[...openOfEnclave(record.holder), ...missingOfCode(record.signed)]}
            facts={{
              hash:
                record.hash === null ? null : (
                  <p>
                    <Hex value={record.hash} digits={64} />
                  </p>
                ),
            }}
            isDevelopment={isMarked}
          />
        </section>
      ))}
      {records.length > shown.length && (
        <p>{records.length - shown.length} more records were checked, but are not shown.</p>
      )}
    </>
  )
}

function sayDoubt(doubt: Doubt): string {
  switch (doubt.kind) {
    case 'not in log':
      return 'This answer has no log: only its record shows provider, outcome and times.'
    case 'content missing':
      return `${beginSentence(sayAbsence(doubt.stated))}: give the ${doubt.parts.join(' and ')} under “What you kept”.`
    case 'cut':
      return `The answer was cut (${doubt.outcome}), and its end is not shown.`
  }
}
