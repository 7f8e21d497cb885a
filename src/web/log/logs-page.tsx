import './log.css'
import {
  type BlockExplorer,
  BlockExplorerForm,
  BlockLink,
  TransactionLink,
  useBlockExplorer,
} from '../kit/block-explorer.tsx'
import { Busy, FaultNotice, State } from '../kit/notices.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Count, Time } from '../kit/values.tsx'
import {
  type DescribedLog,
  readEnclaves,
  readLog,
  readLogs,
  type ServedEnclave,
} from './answers.ts'
import { EnclaveState } from './enclave-state.tsx'
import { HeadAnchorLabel } from './heads-table.tsx'
import { createSeenHeads, openStorage, type SeenHead } from './seen-heads.ts'

const EVERY_MS = 10_000

const seenHeads = createSeenHeads(openStorage())

type Overview = {
  readonly logs: readonly DescribedLog[]
  readonly faults: readonly Error[]
  readonly isWhole: boolean
  /** By notary. */
  readonly enclaves: ReadonlyMap<string, ShownEnclave>
  /** Logs that this browser saw at this gateway earlier, but that are missing now. */
  readonly missing: readonly { readonly notary: string; readonly seen: SeenHead }[]
}

type ShownEnclave = ServedEnclave & { readonly code: string | null }

async function readOverview(signal: AbortSignal): Promise<Overview> {
  const [{ logs, faults, isWhole }, enclaves, { readCode }] = await Promise.all([
    readLogs(signal),
    readEnclaves(signal),
    import('./enclave-code.ts'),
  ])
  const listed = new Set(logs.map(({ notary }) => notary))
  const unlisted = seenHeads
    .list()
    .filter((notary) => !listed.has(notary))
    .slice(0, MISSING_MAX)
  const missing = []
  for (const notary of unlisted) {
    const seen = seenHeads.find(notary)
    if (seen !== null && (await readLog(notary, signal)) === null) missing.push({ notary, seen })
  }
  return {
    logs,
    faults,
    isWhole,
    missing,
    enclaves: new Map(
      enclaves.map((one) => [one.notary, { ...one, code: readCode(one.attestation) }]),
    ),
  }
}

/** Maximum of missing logs that the page requests, one by one. */
const MISSING_MAX = 20

export function LogsPage() {
  const { value, fault, reload } = useLoaded(readOverview, [], { everyMs: EVERY_MS })
  const [explorer, setExplorer] = useBlockExplorer()
  return (
    <>
      <h1>Logs</h1>
      <p class="lead">
        Every verified answer is a leaf of its notary's log, signed in an enclave. A log only grows,
        and its heads are anchored on a blockchain. So a later change of the log can be detected.
      </p>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value?.faults.map((one, at) => (
        <FaultNotice key={at} fault={one}>
          One log in the list cannot be read. The other logs are below. Ask the operator of this
          gateway.
        </FaultNotice>
      ))}
      {value?.missing.map(({ notary, seen }) => (
        <MissingNotice key={notary} notary={notary} seen={seen} />
      ))}
      <section class="logs" aria-label="All logs">
        {value === null ? (
          fault === null && <Busy what="Loading the logs" />
        ) : value.logs.length + value.faults.length === 0 ? (
          <p>
            There is no log yet: the first verified answer starts the first log.{' '}
            <a href="/">How to ask</a>
          </p>
        ) : (
          <ul class="log-list">
            {value.logs.map((log) => (
              <li key={log.notary}>
                <LogCard
                  log={log}
                  enclave={value.enclaves.get(log.notary) ?? null}
                  explorer={explorer}
                />
              </li>
            ))}
          </ul>
        )}
        {value !== null && !value.isWhole && (
          <p>There are more logs than this page shows: /v1/log has all logs.</p>
        )}
        {value !== null && <BlockExplorerForm explorer={explorer} onChange={setExplorer} />}
      </section>
    </>
  )
}

function LogCard({
  log,
  enclave,
  explorer,
}: {
  readonly log: DescribedLog
  readonly enclave: ShownEnclave | null
  readonly explorer: BlockExplorer
}) {
  const { notary, head, size } = log
  return (
    <article class="card">
      <h2>
        <a class="hex" href={`/log/${notary}`}>
          {notary}
        </a>
      </h2>
      <dl class="facts">
        <div>
          <dt>Answers, a leaf each</dt>
          <dd>
            <strong>
              <Count value={size} />
            </strong>{' '}
            <SeenBefore log={log} />
          </dd>
        </div>
        <div>
          <dt>Newest head</dt>
          <dd>
            <NewestHead log={log} />
          </dd>
        </div>
        <div>
          <dt>Enclave</dt>
          <dd>
            <EnclaveState enclave={enclave} code={enclave?.code ?? null} />
          </dd>
        </div>
        <div>
          <dt>Log started</dt>
          <dd>
            <Time ms={1_000 * log.created_at} />
          </dd>
        </div>
        {head !== null && (
          <div>
            <dt>Newest anchor in a block</dt>
            <dd>
              {head.anchor.block_number !== null && (
                <>
                  block <BlockLink number={head.anchor.block_number} explorer={explorer} />
                  <br />
                </>
              )}
              <TransactionLink hash={head.anchor.tx_hash} explorer={explorer} />
            </dd>
          </div>
        )}
      </dl>
    </article>
  )
}

/** `log.head` is the newest head whose anchor is in a block. */
function NewestHead({ log: { notary, size, head } }: { readonly log: DescribedLog }) {
  if (size === 0) return <>none yet</>
  const inBlock = head === null ? 0 : head.size
  return (
    <>
      {head !== null && inBlock === size ? (
        <HeadAnchorLabel state={head.anchor.state} />
      ) : (
        <HeadAnchorLabel state="pending" />
      )}
      <br />
      {head === null ? (
        'no head in a block yet'
      ) : (
        <a href={`/log/${notary}#head-${inBlock}`}>
          {inBlock === size ? 'all' : <Count value={inBlock} />} leaves in a block
        </a>
      )}
    </>
  )
}

/** Compares only sizes: the page of the log checks the proof. */
function SeenBefore({ log }: { readonly log: DescribedLog }) {
  const seen = seenHeads.find(log.notary)
  if (seen === null) return null
  if (log.size < seen.size)
    return (
      <State tone="bad">
        had {seen.size.toLocaleString('en')} at your last visit: leaves are missing
      </State>
    )
  const added = log.size - seen.size
  return added === 0 ? null : (
    <span class="faint">{added.toLocaleString('en')} more than at your last visit</span>
  )
}

function MissingNotice({ notary, seen }: { readonly notary: string; readonly seen: SeenHead }) {
  return (
    <div class="notice bad" role="alert">
      <p>
        <strong>A log is missing.</strong> On <Time ms={seen.atMs} /> this browser saw{' '}
        {seen.size.toLocaleString('en')} leaves of the log of <span class="hex">{notary}</span>. Now
        the gateway says that it has no such log.
      </p>
      <p>
        Ask its operator. <a href={`/log/${notary}`}>The head that was seen</a> has its notary's
        signature. It proves that there were leaves.
      </p>
    </div>
  )
}
