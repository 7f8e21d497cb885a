import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Client } from 'undici'
import { CONTROL_FILE, CONTROL_OPERATIONS, type GatewayOperations } from '../api/control-operations.ts'

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
  const operations = operationsThrough(client)
  try {
    await operations.keys.list()
  } catch (error) {
    await client.destroy()
    if (error instanceof ControlError) throw error
    return null
  }
  return { ...operations, close: () => client.destroy() }
}

/** Every operation as a request, by the table that the gateway answers by. */
function operationsThrough(client: Client): GatewayOperations {
  return Object.fromEntries(
    Object.entries(CONTROL_OPERATIONS).map(([resource, operations]) => [
      resource,
      Object.fromEntries(
        Object.entries(operations).map(([verb, { method, result }]) => [
          verb,
          async (order?: unknown) => {
            const { data, error } = result.safeParse(
              await send(client, { method, path: `/${resource}`, order }),
            )
            if (error) throw new ControlError('the gateway answers in another form: it is of another version')
            return data
          },
        ]),
      ),
    ]),
  ) as GatewayOperations
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
  { method, path, order }: { readonly method: string; readonly path: string; readonly order: unknown },
): Promise<unknown> {
  const body = order === undefined ? null : JSON.stringify(order)
  const reply = await client.request({ method, path, body })
  const value: unknown = await reply.body.json()
  if (reply.statusCode === 200) return value
  const { message } = value as { readonly message?: unknown }
  throw new ControlError(typeof message === 'string' ? message : `status ${reply.statusCode}`)
}
