import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { printable } from '#attestation/report/printable.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import { lockFile } from '../file-lock.ts'
import { writeFileWhole } from '../files.ts'

type KeptName = { readonly gateway: string; readonly name: string }

/** A file with the ids of one machine's nodes, by gateway and name. Methods throw CliError. */
export type KeptNodes = {
  /** Returns null if there is no file, or no node with this name. */
  find(of: KeptName): Promise<string | null>
  /** Call it only under the lock. */
  keep(of: KeptName, nodeId: string): Promise<void>
  /** Runs `run` under a lock that excludes the machine's other processes. */
  locked<Value>(run: () => Promise<Value>): Promise<Value>
}

const FORMAT = 'affidavit-nodes'

const form = z.looseObject({
  format: z.literal(FORMAT),
  version: z.literal(1),
  nodes: z.array(z.looseObject({ gateway: z.string(), name: z.string(), node_id: z.string() })),
})

type Entries = z.output<typeof form>['nodes']

/** A missing file contains no nodes. Only the file's owner can read it. */
export function keptNodesIn(file: string): KeptNodes {
  return {
    async find({ gateway, name }) {
      const entries = await readEntries(file)
      return entries.find((entry) => isOf(entry, { gateway, name }))?.node_id ?? null
    },
    async keep(of, nodeId) {
      const others = (await readEntries(file)).filter((entry) => !isOf(entry, of))
      const nodes = [...others, { gateway: of.gateway, name: of.name, node_id: nodeId }]
      const state = { format: FORMAT, version: 1, nodes }
      await writeFileWhole(file, `${JSON.stringify(state, null, 2)}\n`)
    },
    async locked(run) {
      const lock = await lockFile(file, {
        timeoutMs: LOCK_TIMEOUT_MS,
        advice: 'Name another file with NODES_FILE',
      })
      try {
        return await run()
      } finally {
        await lock.release()
      }
    },
  }
}

function isOf(entry: KeptName, { gateway, name }: KeptName): boolean {
  return entry.gateway === gateway && entry.name === name
}

async function readEntries(file: string): Promise<Entries> {
  const text = await readFile(file, 'utf8').catch((fault: NodeJS.ErrnoException) => {
    if (fault.code === 'ENOENT') return null
    throw new CliError(
      `cannot read ${printable(file)}: ${fault.code ?? fault.message}. Let this user read it, ` +
        'or name another file with NODES_FILE',
      EXIT_CODES.unavailable,
    )
  })
  if (text === null) return []
  try {
    return form.parse(JSON.parse(text)).nodes
  } catch (fault) {
    if (!(fault instanceof SyntaxError) && !(fault instanceof z.ZodError)) throw fault
    throw new CliError(
      `${printable(file)} is not a file of nodes. Remove it: the node is then found again by its name`,
    )
  }
}

/** Maximum wait for another agent, which makes at most two calls of 30 s under the lock. */
const LOCK_TIMEOUT_MS = 60_000
