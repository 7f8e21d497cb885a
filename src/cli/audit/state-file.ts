import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import { printable } from '../printable.ts'
import { writeFileWhole } from '../write-output.ts'
import { openPayers, type Payers, type WrittenPayers, WrittenPayersForm } from './payers.ts'
import { readSavedLog, type SavedLog, writeSavedLog } from './saved-log.ts'

/** Shortest time between two writes on the way, milliseconds: each waits for the disk. */
export const SAVE_INTERVAL_MS = 1_000

/** Where audits stand, log by log, over several runs. */
export type AuditState = {
  /** Who paid for the anchors of all logs so far; kept with them. */
  readonly payers: Payers
  find(notary: string): SavedLog | null
  /** Of all logs that any run came to. */
  notaries(): readonly string[]
  /** Keeps where a log stands; written at once, or within SAVE_INTERVAL_MS. Throws CliError. */
  save(notary: string, saved: SavedLog): Promise<void>
  /** Writes what is not written yet. */
  flush(): Promise<void>
}

/**
 * Opens the state in a file, which need not exist yet; null keeps none. `scope` is the digest of what is audited: a state
 * of another scope is refused, since it would hide what no run looked at. Throws CliError.
 */
export async function openAuditState(
  path: string | null,
  { scope, now }: { readonly scope: string; readonly now: () => number },
): Promise<AuditState> {
  const { logs, relayers } = path === null ? nothing() : await readState(path, scope)
  const payers = openPayers(relayers)
  let writtenAtMs = Number.NEGATIVE_INFINITY
  let isDirty = false

  async function flush(): Promise<void> {
    if (path === null || !isDirty) return
    const written = Object.fromEntries([...logs].map(([notary, saved]) => [notary, writeSavedLog(saved)]))
    // When the payers of some logs were not noted, those of the others would pass for all.
    const noted = payers.isWhole ? { relayers: payers.write() } : {}
    const state = { format: FORMAT, version: 1, scope, logs: written, ...noted }
    await writeFileWhole(path, `${JSON.stringify(state)}\n`)
    isDirty = false
    writtenAtMs = now()
  }

  return {
    payers,
    find: (notary) => logs.get(notary) ?? null,
    notaries: () => [...logs.keys()],
    async save(notary, saved) {
      logs.set(notary, saved)
      isDirty = true
      if (now() - writtenAtMs >= SAVE_INTERVAL_MS) await flush()
    },
    flush,
  }
}

const FORMAT = 'affidavit-audit-state'

type State = { readonly logs: Map<string, SavedLog>; readonly relayers: WrittenPayers | null }

const nothing = (): State => ({ logs: new Map(), relayers: {} })

const StateForm = z.strictObject({
  format: z.literal(FORMAT),
  version: z.literal(1),
  scope: z.string(),
  logs: z.record(z.string().regex(/^0x[0-9a-f]{40}$/), z.unknown()),
  relayers: WrittenPayersForm.optional(),
})

async function readState(path: string, scope: string): Promise<State> {
  const text = await readText(path)
  if (text === null) return nothing()
  const state = parseState(text, path)
  if (state.scope === scope) return state
  throw new CliError(
    `${printable(path)} is of an audit with other options (--from, --key, --rpc, --pcr, --release, --root, --configuration): use the same, or another file`,
    EXIT_CODES.usage,
  )
}

function parseState(text: string, path: string): State & { readonly scope: string } {
  try {
    const { scope, logs, relayers = null } = StateForm.parse(JSON.parse(text))
    const saved = Object.entries(logs).map(([notary, log]) => [notary, readSavedLog(log)] as const)
    return { scope, relayers, logs: new Map(saved) }
  } catch (fault) {
    if (!(fault instanceof SyntaxError) && !(fault instanceof z.ZodError)) throw fault
    const reason = fault instanceof z.ZodError ? fault.issues[0]?.message : 'no JSON'
    throw new CliError(
      `${printable(path)} is no state of an audit (${reason}): remove it to begin anew`,
      EXIT_CODES.usage,
    )
  }
}

/** Null when there is no such file. */
async function readText(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8')
  } catch (fault) {
    if (fault instanceof Error && 'code' in fault && fault.code === 'ENOENT') return null
    throw new CliError(
      `cannot read ${printable(path)}: ${fault instanceof Error ? fault.message : 'unknown fault'}`,
      EXIT_CODES.usage,
    )
  }
}
