import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'undici'
import {
  type AccountDescription,
  CONTROL_FILE,
  type EnclaveDescription,
  type GatewayOperations,
  type KeyDescription,
  type RelayerDescription,
} from '../api/control-operations.ts'

/** Longest that a running gateway may take, milliseconds. */
export const CONTROL_TIMEOUT_MS = 10_000

/** The running gateway refused or failed; the message is what it said. */
export class ControlError extends Error {
  override readonly name = 'ControlError'
}

/** Operations through a running gateway; `close` when done. */
export type RemoteOperations = GatewayOperations & { close(): Promise<void> }

/**
 * Gives the operations of the gateway that runs on a data folder, or that listens at `controlSocket`, or null when none does (there is no address, or
 * nobody answers there: it was killed).
 */
export async function connectToGateway(
  dataFolder: string,
  controlSocket: string | null = null,
): Promise<RemoteOperations | null> {
  const socketPath = controlSocket ?? (await readAddress(dataFolder))
  if (socketPath === null) return null
  const client = new Client('http://gateway', {
    connect: { socketPath, timeout: CONTROL_TIMEOUT_MS },
    headersTimeout: CONTROL_TIMEOUT_MS,
    bodyTimeout: CONTROL_TIMEOUT_MS,
  })
  const ask = (method: string, path: string, body?: object) => send(client, { method, path, body })
  try {
    await ask('GET', '/keys')
  } catch (error) {
    await client.destroy()
    if (error instanceof ControlError) throw error
    return null
  }
  return {
    keys: {
      create: async (order) => (await ask('POST', '/keys', order)) as KeyDescription & { key: string },
      list: async () => (await ask('GET', '/keys')) as readonly KeyDescription[],
      revoke: async (id) => outcomeOf(await ask('DELETE', `/keys/${encodeURIComponent(id)}`)),
    },
    accounts: {
      open: async (name) => (await ask('POST', '/accounts', { name })) as AccountDescription,
      list: async () => (await ask('GET', '/accounts')) as readonly AccountDescription[],
      setTier: async (order) => outcomeOf(await ask('PUT', '/accounts', order)),
    },
    enclaves: {
      list: async () => (await ask('GET', '/enclaves')) as readonly EnclaveDescription[],
      add: async (url) => outcomeOf(await ask('POST', '/enclaves', { url })),
      drain: async (url) => outcomeOf(await ask('PUT', '/enclaves', { url })),
      remove: async (url) => outcomeOf(await ask('DELETE', '/enclaves', { url })),
    },
    relayers: { list: async () => (await ask('GET', '/relayers')) as readonly RelayerDescription[] },
    close: () => client.destroy(),
  }
}

/** The gateway is this project's own, and of the same version: what it answers has the form it says. */
function outcomeOf<Outcome extends string>(value: unknown): Outcome {
  return (value as { readonly outcome: Outcome }).outcome
}

async function readAddress(dataFolder: string): Promise<string | null> {
  try {
    const { socket } = JSON.parse(await readFile(join(dataFolder, CONTROL_FILE), 'utf8'))
    return typeof socket === 'string' ? socket : null
  } catch {
    return null
  }
}

async function send(
  client: Client,
  {
    method,
    path,
    body,
  }: { readonly method: string; readonly path: string; readonly body?: object | undefined },
): Promise<unknown> {
  const reply = await client.request({ method, path, body: body === undefined ? null : JSON.stringify(body) })
  const value = (await reply.body.json()) as { readonly message?: unknown }
  if (reply.statusCode === 200) return value
  throw new ControlError(typeof value.message === 'string' ? value.message : `status ${reply.statusCode}`)
}
