import '../verify/verify.css'
import './log.css'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { type BlockExplorer, BlockExplorerForm, useBlockExplorer } from '../kit/block-explorer.tsx'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { PolicyNotice } from '../kit/policy-notice.tsx'
import { type Loaded, useLoaded } from '../kit/use-loaded.ts'
import { CopyButton, Count, Hex, Time } from '../kit/values.tsx'
import {
  configurationDigestOf,
  type DescribedLog,
  type HeadPage,
  readBootStatement,
  readConsistency,
  readEnclaves,
  readHeads,
  readLog,
} from './answers.ts'
import { EnclaveState } from './enclave-state.tsx'
import { createGrowthWatch, type Growth } from './growth.ts'
import { GrowthNotice } from './growth-notice.tsx'
import { HeadsPart, useHeadPages } from './heads-part.tsx'
import { HeadAnchorLabel } from './heads-table.tsx'
import { LeavesPart } from './leaves-part.tsx'
import { usePlace } from './place.ts'
import { ConsistencyForm, InclusionForm } from './proof-forms.tsx'
import { createSeenHeads, openStorage } from './seen-heads.ts'

/** Interval while the page is visible. */
const EVERY_MS = 3_000

const seenHeads = createSeenHeads(openStorage())

/** The page `/log/{notary}`. `name` is the text in the path, even if it is not a notary. */
export function LogPage({ name }: { readonly name: string }) {
  const text = decode(name)
  if (!/^(0x)?[0-9a-f]{40}$/i.test(text))
    return (
      <>
        <h1>Not a notary</h1>
        <div class="notice bad" role="alert">
          <p>
            Expected the address of a notary, 0x and 40 hex digits, after /log/. Got:{' '}
            <OutsideText text={text} isOneLine={true} shownMax={100} />
          </p>
          <p>
            <a href="/log">See all logs</a>, and choose one.
          </p>
        </div>
      </>
    )
  return <LogOf notary={`0x${text.slice(-40).toLowerCase()}`} />
}

function decode(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    return name
  }
}

type Shown = { readonly log: DescribedLog; readonly newest: HeadPage; readonly growth: Growth }

function LogOf({ notary }: { readonly notary: string }) {
  const [isLive, setIsLive] = useState(true)
  const [explorer, setExplorer] = useBlockExplorer()
  const watch = useMemo(
    () =>
      createGrowthWatch({
        notary,
        seen: seenHeads,
        now: Date.now,
        readPath: (range) => readConsistency(notary, range),
      }),
    [notary],
  )
  const load = async (signal: AbortSignal): Promise<Shown | 'none'> => {
    const log = await readLog(notary, signal)
    if (log === null) return 'none'
    const newest = await readHeads(notary, { below: null, signal })
    const growth = await watch.observe(log, newest.heads[0] ?? null, signal)
    return { log, newest, growth }
  }
  const loaded = useLoaded(load, [notary], { everyMs: isLive ? EVERY_MS : null })
  const { value, fault, reload } = loaded
  const beside = useLoaded((signal) => readBeside(notary, signal), [notary])
  return (
    <div class="log-page">
      <p class="crumb">
        <a href="/log">All logs</a>
      </p>
      <h1>
        Log of <span class="hex">{notary}</span> <CopyButton text={notary} what="the address" />
      </h1>
      <PolicyNotice isRevocationUsed={false} />
      {value === 'none' ? (
        <NoLog notary={notary} />
      ) : value === null && fault !== null ? (
        <FaultNotice fault={fault} onRetry={reload} />
      ) : (
        <>
          <GrowthNotice growth={value?.growth ?? null} notary={notary} />
          <Figures shown={value} beside={beside.value} />
          <LiveLine loaded={loaded} shown={value} isLive={isLive} onChange={setIsLive} />
          {value === null ? (
            <Busy what="Loading the log" />
          ) : (
            <LogParts shown={value} beside={beside} explorer={explorer} onExplorer={setExplorer} />
          )}
        </>
      )}
    </div>
  )
}

function NoLog({ notary }: { readonly notary: string }) {
  const seen = seenHeads.find(notary)
  if (seen !== null)
    return (
      <GrowthNotice
        notary={notary}
        growth={{
          kind: 'broken',
          since: seen,
          head: null,
          reason: 'it says that it has no such log',
        }}
      />
    )
  return (
    <div class="notice warn" role="alert">
      <p>This gateway has no log of this notary.</p>
      <p>
        Check the address: the log may belong to another gateway.{' '}
        <a href="/log">These are the logs here</a>.
      </p>
    </div>
  )
}

/** Data about the log's enclave, loaded once. */
type Beside = Awaited<ReturnType<typeof readBeside>>

async function readBeside(notary: string, signal: AbortSignal) {
  const [enclaves, boot, { EnclaveParts }, { readCode }] = await Promise.all([
    readEnclaves(signal),
    readBootStatement(notary, signal),
    // The code that checks documents is half of the page, but only the lower parts of the page need
    // it. So it is loaded later.
    import('./enclave-parts.tsx'),
    import('./enclave-code.ts'),
  ])
  const enclave = enclaves.find((one) => one.notary === notary) ?? null
  return { enclave, boot, EnclaveParts, code: enclave && readCode(enclave.attestation) }
}

/** Loaded after the log. The parts above do not move when the loaded parts appear. */
function LogParts({
  shown: { log, newest },
  beside,
  explorer,
  onExplorer,
}: {
  readonly shown: Shown
  readonly beside: Loaded<Beside>
  readonly explorer: BlockExplorer
  readonly onExplorer: (explorer: BlockExplorer) => void
}) {
  const place = usePlace()
  const pages = useHeadPages(log.notary, newest, place)
  return (
    <>
      <LeavesPart notary={log.notary} newest={newest} place={place} />
      <HeadsPart log={log} place={place} pages={pages} explorer={explorer} />

      <h2>Check it yourself</h2>
      <p>
        This page gets heads and proofs from the gateway and verifies them itself, so the gateway
        cannot give false ones.
      </p>
      <div class="cards">
        <ConsistencyForm log={log} newest={newest} />
        <InclusionForm log={log} newest={newest} />
      </div>

      {beside.fault !== null && <FaultNotice fault={beside.fault} onRetry={beside.reload} />}
      {beside.value === null ? (
        <Busy what="Loading the enclave" />
      ) : (
        <>
          <beside.value.EnclaveParts
            log={log}
            explorer={explorer}
            {...beside.value}
            attestations={pages.page.attestations}
          />
          <DomainPanel log={log} />
          <BlockExplorerForm explorer={explorer} onChange={onExplorer} />
          <p class="faint">
            This page comes from the gateway whose log it checks. If you do not trust the gateway,
            use your own copy of the program: <code>affidavit audit</code> checks the whole log and
            its anchors on the chain.
          </p>
        </>
      )}
    </>
  )
}

function Figures({
  shown,
  beside,
}: {
  readonly shown: Shown | null
  readonly beside: Beside | null
}) {
  const { log, newest } = shown ?? { log: null, newest: null }
  const [head] = newest?.heads ?? []
  return (
    <dl class="figures">
      <div>
        <dt>Answers, a leaf each</dt>
        <dd class="big" data-testid="leaves">
          {head ? <Count value={head.size} /> : log ? '0' : '…'}
        </dd>
      </div>
      <div>
        <dt>Newest head</dt>
        <dd>
          {head ? (
            <>
              <HeadAnchorLabel state={head.anchor.state} />
              <br />
              <a href={`#head-${head.size}`}>
                <Count value={head.size} /> {head.size === 1 ? 'leaf' : 'leaves'}
              </a>
              {head.anchor.block_number !== null && <>, block {head.anchor.block_number}</>}
            </>
          ) : log ? (
            'none yet'
          ) : (
            '…'
          )}
        </dd>
      </div>
      <div>
        <dt>Enclave</dt>
        <dd>{beside === null ? '…' : <EnclaveState {...beside} />}</dd>
      </div>
      <div>
        <dt>Log started</dt>
        <dd>{log ? <Time ms={1_000 * log.created_at} /> : '…'}</dd>
      </div>
    </dl>
  )
}

/** Says whether the page updates live, with a button to stop the updates. */
function LiveLine({
  loaded: { fault },
  shown,
  isLive,
  onChange,
}: {
  readonly loaded: Loaded<Shown | 'none'>
  readonly shown: Shown | null
  readonly isLive: boolean
  readonly onChange: (isLive: boolean) => void
}) {
  const size = shown?.newest.heads[0]?.size ?? null
  const said = useGrowthWords(size)
  return (
    <div class="live-line row">
      <button type="button" aria-pressed={!isLive} onClick={() => onChange(!isLive)}>
        {isLive ? 'Pause' : 'Go on'}
      </button>
      <span class="faint">
        {!isLive
          ? 'Paused.'
          : fault !== null
            ? 'The gateway does not answer; trying again.'
            : 'Live: new heads appear as they are signed.'}
      </span>
      <span class="hidden-text" role="status" aria-live="polite">
        {said}
      </span>
    </div>
  )
}

/** What a screen reader reads aloud when the log has grown. */
function useGrowthWords(size: number | null): string {
  const [said, setSaid] = useState<{ readonly size: number | null; readonly words: string }>({
    size: null,
    words: '',
  })
  useEffect(() => {
    setSaid((before) => ({
      size,
      words:
        size !== null && before.size !== null && size > before.size
          ? `The log has grown: ${size.toLocaleString('en')} leaves.`
          : before.words,
    }))
  }, [size])
  return said.words
}

function DomainPanel({ log }: { readonly log: DescribedLog }) {
  return (
    <>
      <h2>Where it is anchored</h2>
      <dl class="facts">
        <div>
          <dt>Chain id</dt>
          <dd>{log.chain_id}</dd>
        </div>
        <div>
          <dt>Contract</dt>
          <dd>
            <Hex value={log.contract} digits={40} />
          </dd>
        </div>
        <div>
          <dt>Boot configuration</dt>
          <dd>
            SHA-256 <Hex value={configurationDigestOf(log)} />
          </dd>
        </div>
      </dl>
      <details class="card">
        <summary>The boot configuration: which providers the enclave calls</summary>
        <pre>
          <OutsideText text={JSON.stringify(log.boot_configuration, null, 2)} />
        </pre>
      </details>
    </>
  )
}
