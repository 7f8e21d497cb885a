import { encodeHex } from '../../../attestation/bytes.ts'
import type { BundleFacts } from '../../../attestation/evidence/bundle-report.ts'
import { type Conclusion, conclude } from '../../../attestation/report/conclude.ts'
import type { BundleJudgement } from '../../../attestation/report/judge-bundle.ts'
import type { Doubt, SubjectReport } from '../../../attestation/report/judge-record.ts'
import { beginSentence, sayAbsence } from '../../../attestation/report/say-absence.ts'
import { adviseOnSource, saySource } from '../../../attestation/report/say-source.ts'
import {
  linesOf,
  type ToldExchange,
  type ToldMessage,
} from '../../../attestation/report/told-text.ts'
import { OutsideText } from '../kit/outside-text.tsx'
import { Hex, Time } from '../kit/values.tsx'
import { ChainPicture } from './chain-picture.tsx'
import type { Expected, Outcome } from './job.ts'
import { ReleaseName } from './release-name.tsx'
import { Verdict } from './verdict.tsx'

/** The report on a bundle, or on records. */
export function EvidenceReport({
  judged,
  expected,
  explorer,
}: {
  readonly judged: Extract<Outcome, { kind: 'evidence' }>['judged']
  readonly expected: Expected
  /** Base URL of a block explorer; empty: no links. */
  readonly explorer: string
}) {
  const conclusion = conclude(judged)
  return (
    <>
      {judged.kind === 'bundle' ? (
        <BundleReportView
          judged={judged}
          conclusion={conclusion}
          expected={expected}
          explorer={explorer}
        />
      ) : (
        <RecordsReport conclusion={conclusion} records={judged.records} />
      )}
      {expected.releases.map((line) => (
        <p class="faint" key={line}>
          Expected: <OutsideText text={line} isOneLine={true} shownMax={500} />
        </p>
      ))}
      {expected.roots === 'given' && (
        <p class="faint">
          These results are valid only if you can trust the root that you gave. The root of a
          development enclave proves nothing to other people.
        </p>
      )}
    </>
  )
}

function BundleReportView({
  judged,
  conclusion,
  expected,
  explorer,
}: {
  readonly judged: BundleJudgement
  readonly conclusion: Conclusion
  readonly expected: Expected
  readonly explorer: string
}) {
  const { report, comparison } = judged
  const checks = [...report.checks, ...comparison]
  const { facts, source } = report
  return (
    <>
      <Verdict {...conclusion}>{rootHint(checks)}</Verdict>
      <Told exchange={judged.exchange} />
      <h2>The chain</h2>
      <ChainPicture checks={checks} facts={facts === null ? {} : factsOfBundle(facts, explorer)} />
      {facts !== null && !expected.code && (
        <p>
          You did not say which code you expect. The PCR0 of this code is{' '}
          <Hex value={encodeHex(facts.measurements.get(0) ?? new Uint8Array())} />. Anyone can run
          an enclave with their own code.
        </p>
      )}
      {facts !== null && source !== null && (
        <p>
          This bundle says it is from <OneLine text={saySource(source)} />: a hint, not checked.{' '}
          <OneLine text={adviseOnSource(judged) ?? ''} />
        </p>
      )}
    </>
  )
}

/** A sentence with text from outside in it, never a link. */
function OneLine({ text }: { readonly text: string }) {
  return <OutsideText text={text} isOneLine={true} shownMax={2_000} />
}

function factsOfBundle(facts: BundleFacts, explorer: string) {
  const { provider, model, anchoredIn, release } = facts
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
            <ReleaseName release={release} />.
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
        {anchoredIn === null ? (
          <p>The time of the anchor is not shown: the block was not looked up.</p>
        ) : (
          <p>
            Not after <Time ms={anchoredIn.timestamp * 1000} />, block {anchoredIn.number}{' '}
            <Hex value={anchoredIn.hash} />
          </p>
        )}
        {anchoredIn !== null && explorer !== '' && (
          <p>
            <a href={`${explorer}/block/${anchoredIn.number}`} target="_blank" rel="noreferrer">
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

/** Records that are shown at once; the rest is counted. */
const RECORDS_SHOWN = 20

function RecordsReport({
  conclusion,
  records,
}: {
  readonly conclusion: Conclusion
  readonly records: readonly SubjectReport[]
}) {
  // What failed first: nobody should have to look for it.
  const sorted = records.toSorted((one, other) => Number(one.ok) - Number(other.ok))
  const shown = sorted.slice(0, RECORDS_SHOWN)
  return (
    <>
      <Verdict {...conclusion}>
        {conclusion.verdict === 'consistent' && (
          <ul>
            {[...new Set(records.flatMap(({ doubts }) => doubts.map(sayDoubt)))].map((doubt) => (
              <li key={doubt}>{doubt}</li>
            ))}
            <li>
              A record has no boot configuration and no anchor. The evidence bundle of this
              completion has both.
            </li>
          </ul>
        )}
        {rootHint(records.flatMap(({ checks }) => checks))}
      </Verdict>
      {shown.map((record, at) => (
        <section key={at}>
          {records.length > 1 && (
            <h2>
              Record{' '}
              <OutsideText text={record.hash ?? 'without hash'} isOneLine={true} shownMax={80} />
            </h2>
          )}
          <Told exchange={record.exchange} />
          {records.length === 1 && <h2>The chain</h2>}
          <ChainPicture
            checks={record.checks}
            facts={{
              hash:
                record.hash === null ? null : (
                  <p>
                    <Hex value={record.hash} digits={64} />
                  </p>
                ),
            }}
          />
        </section>
      ))}
      {records.length > shown.length && (
        <p>{records.length - shown.length} more records were checked, but are not shown.</p>
      )}
    </>
  )
}

/** What can be done about a doubt. */
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

/** Where the document leads to a root that nobody named: often a development enclave. */
function rootHint(checks: readonly { readonly outcome: string; readonly detail: string }[]) {
  const isUntrusted = checks.some(
    ({ outcome, detail }) => outcome === 'failed' && /(^|: |; )root_untrusted: /.test(detail),
  )
  if (!isUntrusted) return null
  return (
    <p>
      Does this come from a development enclave? The root is in{' '}
      <code>DATA_DIR/nsm/root.crt.pem</code>: give it under “What you expect”, “Roots”.
    </p>
  )
}

function Told({ exchange }: { readonly exchange: ToldExchange }) {
  const { asked, said } = exchange
  if (asked === null && said === null) return null
  return (
    <div class="told">
      {asked !== null && <ToldPart title="Asked" messages={asked} />}
      {said !== null && <ToldPart title="Answered" messages={said} />}
    </div>
  )
}

function ToldPart({
  title,
  messages,
}: {
  readonly title: string
  readonly messages: readonly ToldMessage[]
}) {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      <dl class="messages">
        {messages.map(linesOf).map(({ who, lines }, at) => (
          <div key={at}>
            <dt>
              <bdi>{who}</bdi>
            </dt>
            <dd>
              <bdi class="outside">{lines.join('\n')}</bdi>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  )
}
