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
import { Count, Hex, Time } from '../kit/values.tsx'
import { type Log, readEnclaves, readLog, readLogs, type ServedEnclave } from './answers.ts'
import { AnchorState } from './heads-table.tsx'
import { createSeenHeads, openStorage, type SeenHead } from './seen-heads.ts'

/** How often the list is read anew. */
const EVERY_MS = 10_000

const seenHeads = createSeenHeads(openStorage())

type Overview = {
  readonly logs: readonly Log[]
  readonly faults: readonly Error[]
  readonly isWhole: boolean
  readonly enclaves: ReadonlyMap<string, ServedEnclave['status']>
  /** Logs that this browser has seen here, and that the gateway says it does not have. */
  readonly missing: readonly { readonly notary: string; readonly seen: SeenHead }[]
}

async function readOverview(signal: AbortSignal): Promise<Overview> {
  const [{ logs, faults, isWhole }, enclaves] = await Promise.all([
    readLogs(signal),
    readEnclaves(signal),
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
    ...{ logs, faults, isWhole, missing },
    enclaves: new Map(enclaves.map(({ notary, status }) => [notary, status])),
  }
}

/** Logs seen earlier that are asked for one by one. */
const MISSING_MAX = 20

/** `/log`: every log there is. */
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
                <LogCard log={log} status={value.enclaves.get(log.notary)} explorer={explorer} />
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
  status,
  explorer,
}: {
  readonly log: Log
  readonly status: ServedEnclave['status'] | undefined
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
          <dt>Leaves</dt>
          <dd>
            <Count value={size} /> <SeenBefore log={log} />
          </dd>
        </div>
        <div>
          <dt>Enclave</dt>
          <dd>
            {status === 'in_use' ? (
              <State tone="good">in use</State>
            ) : status === 'draining' ? (
              <State tone="warn">draining</State>
            ) : (
              <State tone="open">not in use</State>
            )}
          </dd>
        </div>
        <div>
          <dt>Begun</dt>
          <dd>
            <Time ms={1_000 * log.created_at} />
          </dd>
        </div>
        <div>
          <dt>Newest head in a block</dt>
          <dd>
            {head === null ? (
              'none yet'
            ) : (
              <>
                <Count value={head.size} /> leaves, root <Hex value={head.root} digits={8} />
              </>
            )}
          </dd>
        </div>
        <div>
          <dt>Its anchor</dt>
          <dd>
            {head === null ? (
              'none yet'
            ) : (
              <>
                <AnchorState state={head.anchor.state} />{' '}
                {head.anchor.block_number !== null && (
                  <>
                    in block <BlockLink number={head.anchor.block_number} explorer={explorer} />
                  </>
                )}{' '}
                by <TransactionLink hash={head.anchor.tx_hash} explorer={explorer} />
              </>
            )}
          </dd>
        </div>
      </dl>
    </article>
  )
}

/** Only sizes are compared here; the log's own page checks the proof. */
function SeenBefore({ log }: { readonly log: Log }) {
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
