import '../verify/verify.css'
import './completion.css'
import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import type { BundleFacts } from '#attestation/evidence/bundle-checks.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { Json } from '#attestation/json/value.ts'
import { askEvidence, OwnGatewayFault } from '../kit/gateway.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { PolicyNotice } from '../kit/policy-notice.tsx'
import { saveFile } from '../kit/save-file.ts'
import { keepCompletion } from '../kit/seen-completions.ts'
import { usePolicy } from '../kit/tab-policy.ts'
import { useLoaded } from '../kit/use-loaded.ts'
import { CopyButton, Count, Time } from '../kit/values.tsx'
import { EvidenceReport } from '../verify/evidence-report.tsx'
import { ExpectedDemand } from '../verify/expected-demand.tsx'
import { PrintHint } from '../verify/print-hint.tsx'
import { SaveEvidence } from '../verify/save-evidence.tsx'
import { createChecker, fillInWorker } from '../verify/start-worker.ts'
import { Refused } from '../verify/verdict.tsx'
import { ContentForms } from './content-forms.tsx'
import { type CompletionJudgement, isWaiting, judgeCompletion } from './judge-completion.ts'

/** Interval of reads while the evidence has no block. */
const EVERY_MS = 4_000

/** The page `/c/{hash}`. `name` is the text in the path, even if it is not a hash. */
export function CompletionPage({ name }: { readonly name: string }) {
  const text = decode(name)
  if (!/^(0x)?[0-9a-f]{64}$/i.test(text))
    return (
      <>
        <h1>Not a completion</h1>
        <div class="notice bad" role="alert">
          <p>
            Expected the hash of a completion, 64 hex digits, after /c/. Got:{' '}
            <OutsideText text={text} isOneLine={true} shownMax={100} />
          </p>
          <p>
            The hash is the member <code>hash</code> of a verified answer. A file of evidence is
            checked at <a href="/verify">Verify</a>.
          </p>
        </div>
      </>
    )
  return <Completion hash={text.slice(-64).toLowerCase()} />
}

function decode(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    return name
  }
}

function Completion({ hash }: { readonly hash: string }) {
  // Evidence that was fetched with a key. It replaces the public evidence.
  const [whole, setWhole] = useState<Json | null>(null)
  const [kept, setKept] = useState<File | null>(null)
  const [isFinal, setIsFinal] = useState(false)
  const { policy } = usePolicy().inForce
  const checker = useMemo(createChecker, [])
  const fetched = useLoaded(
    async (signal) => {
      const given = await askEvidence(`/v1/evidence/${hash}`, { signal })
      setIsFinal(!isWaiting(given))
      return given
    },
    [hash],
    { everyMs: isFinal || whole !== null ? null : EVERY_MS },
  )
  const given = whole ?? fetched.value
  const text = given === null ? '' : canonicalizeJson(given)
  const source = useMemo(() => new Blob([text], { type: 'application/json' }), [text])
  const asked = [text, policy, kept] as const
  const judged = useLoaded(async () => {
    if (given === null) return null
    const demands = { hash, policy, kept, checker }
    return { judgement: await judgeCompletion(given, demands), of: asked }
  }, asked)
  return (
    <div class="completion">
      {judged.value === null && (
        <>
          <h1>Completion</h1>
          <Name hash={hash} />
        </>
      )}
      {given === null && fetched.fault !== null && (
        <FaultNotice fault={fetched.fault} onRetry={fetched.reload}>
          {adviceFor(fetched.fault)}
        </FaultNotice>
      )}
      {given === null && fetched.fault === null && <Busy what="Fetching the evidence" />}
      {judged.fault !== null && <FaultNotice fault={judged.fault} onRetry={judged.reload} />}
      {given !== null && judged.value === null && judged.fault === null && (
        <Busy what="Checking the evidence" />
      )}
      {judged.value !== null && judged.fault === null && (
        <>
          <div role="status">
            {isOther(judged.value.of, asked) && (
              <p class="notice warn" data-outdated>
                Checking again. The results below belong to the earlier check.
              </p>
            )}
          </div>
          <PrintHint />
          <Judgement hash={hash} judgement={judged.value.judgement} />
        </>
      )}
      {given !== null && judged.value !== null && (
        <>
          <ExpectedDemand readFile={fillInWorker} />
          <p class="row">
            <button
              type="button"
              onClick={() => saveFile(`affidavit-${hash.slice(0, 16)}.json`, `${text}\n`)}
            >
              Save this evidence
            </button>
            <span>
              Saved, it can be checked <a href="/verify">anywhere</a>, and with a chain of your
              choice.
            </span>
          </p>
          {judged.value.judgement.kind === 'judged' && <SaveEvidence source={source} />}
        </>
      )}
      {(given !== null || isForbidden(fetched.fault)) && (
        <ContentForms hash={hash} kept={kept} onWhole={setWhole} onKept={setKept} />
      )}
    </div>
  )
}

function isOther(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.some((value, at) => value !== other[at])
}

function Judgement({
  hash,
  judgement,
}: {
  readonly hash: string
  readonly judgement: CompletionJudgement
}) {
  const outcome = judgement.kind === 'other' ? null : judgement.outcome
  if (outcome?.kind !== 'evidence')
    return (
      <>
        {outcome?.kind === 'refused' ? (
          <Refused outcome={outcome} />
        ) : (
          <OtherNotice got={judgement.kind === 'other' ? judgement.got : null} />
        )}
        <Name hash={hash} />
      </>
    )
  const { judged } = outcome
  const facts = judged.kind === 'bundle' ? judged.report.facts : null
  return (
    <EvidenceReport judged={judged} expected={outcome.expected} explorer="">
      <PolicyNotice isUnderVerdict={true} />
      <Name hash={hash} />
      {facts !== null && <Facts hash={hash} facts={facts} />}
    </EvidenceReport>
  )
}

function Name({ hash }: { readonly hash: string }) {
  return (
    <p class="faint">
      Completion <span class="hex">{hash}</span> <CopyButton text={hash} what="the hash" />
    </p>
  )
}

/** True if the gateway gives the evidence only to people who may read the completion. */
function isForbidden(fault: unknown): boolean {
  return fault instanceof OwnGatewayFault && fault.code === 'evidence_restricted'
}

function adviceFor(fault: unknown): string | undefined {
  if (isForbidden(fault)) return 'Enter an API key that may read it, below.'
  if (fault instanceof OwnGatewayFault && fault.status === 404)
    return 'Check the hash: it may belong to another gateway, or to an answer that was not committed.'
  return undefined
}

function OtherNotice({ got }: { readonly got: string | null }) {
  return (
    <div class="verdict bad" role="alert">
      <h1>
        <span aria-hidden="true">✗ </span>ANOTHER COMPLETION
      </h1>
      <p class="sentence">
        This is the evidence of another completion. The gateway gave{' '}
        {got === null ? (
          'something else'
        ) : (
          <>
            the evidence of <OutsideText text={got} isOneLine={true} shownMax={80} />
          </>
        )}
        .
      </p>
      <p>Do not rely on it, and ask the operator.</p>
    </div>
  )
}

/** The reader can trust these facts only if the verdict above is good. */
function Facts({ hash, facts }: { readonly hash: string; readonly facts: BundleFacts }) {
  const { provider, model, notary, index } = facts
  useEffect(() => keepCompletion({ notary, index }, hash), [notary, index, hash])
  return (
    <dl class="facts">
      <Fact name="Finished">
        <Time ms={1_000 * facts.finishedAt} />
      </Fact>
      <Fact name="Provider">
        <OutsideText
          text={`${provider.name}, ${provider.origin}`}
          isOneLine={true}
          shownMax={200}
        />
      </Fact>
      <Fact name="Requested model">
        <OutsideText text={model.requested} isOneLine={true} shownMax={200} />
      </Fact>
      <Fact name="Model in the answer">
        {model.returned === null ? (
          'the answer names no model'
        ) : (
          <OutsideText text={model.returned} isOneLine={true} shownMax={200} />
        )}
      </Fact>
      <Fact name="Outcome">{facts.outcome.replaceAll('_', ' ')}</Fact>
      <Fact name="In the log">
        <a href={`/log/${notary}#leaf-${index}`}>
          leaf <Count value={index} /> of <span class="hex">{notary}</span>
        </a>
      </Fact>
    </dl>
  )
}

function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}
