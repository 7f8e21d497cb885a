import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'undici'
import { CONTROL_FILE, type KeyDescription, type KeyOperations } from './operations.ts'

/** Longest that a running gateway may take, milliseconds. */
export const CONTROL_TIMEOUT_MS = 10_000

/** The running gateway refused or failed; the message is what it said. */
export class ControlError extends Error {
  override readonly name = 'ControlError'
}

/** Key operations through a running gateway; `close` when done. */
export type RemoteKeys = KeyOperations & { close(): Promise<void> }

/**
 * Gives the key operations of the gateway that runs on a data folder, or null when none does (there is no address, or
 * nobody answers there: it was killed).
 */
export async function connectToGateway(dataFolder: string): Promise<RemoteKeys | null> {
  const socketPath = await readAddress(dataFolder)
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
    create: async (names) => (await ask('POST', '/keys', names)) as KeyDescription & { key: string },
    list: async () => (await ask('GET', '/keys')) as readonly KeyDescription[],
    revoke: async (id) => {
      const { outcome } = (await ask('DELETE', `/keys/${encodeURIComponent(id)}`)) as {
        outcome: 'revoked' | 'unknown'
      }
      return outcome
    },
    close: () => client.destroy(),
  }
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
