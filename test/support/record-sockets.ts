import { appendFileSync } from 'node:fs'
import net from 'node:net'
import { join } from 'node:path'

/*
 * For `node --import`: writes the bytes of each socket of the process into separate files below
 * RECORD_SOCKETS. `accepted-1.in`, `pipe-2.out`, `port5432-3.in`: where the socket leads, its
 * number, and the direction.
 */

const folder = process.env.RECORD_SOCKETS
if (folder === undefined) throw new Error('expected RECORD_SOCKETS to be a folder')

const names = new WeakMap<net.Socket, string>()
let count = 0

function nameSocket(socket: net.Socket, kind: string): string {
  count += 1
  const name = `${kind}-${count}`
  names.set(socket, name)
  return name
}

function record(socket: net.Socket, direction: 'in' | 'out', chunk: unknown): void {
  if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array)) return
  const name = names.get(socket) ?? nameSocket(socket, 'other')
  appendFileSync(join(folder ?? '', `${name}.${direction}`), chunk)
}

// biome-ignore lint/suspicious/noExplicitAny: these methods are not part of Node's interface.
const methods = net.Socket.prototype as any

const { connect, push, _writeGeneric: write } = methods
methods.connect = function (this: net.Socket, ...given: readonly unknown[]) {
  const [first] = given.flat() as readonly (number | { path?: string; port?: number })[]
  const { path, port } = typeof first === 'object' ? first : { path: undefined, port: first }
  nameSocket(this, path === undefined ? `port${port}` : 'pipe')
  return connect.apply(this, given)
}
methods.push = function (this: net.Socket, ...given: readonly unknown[]) {
  record(this, 'in', given[0])
  return push.apply(this, given)
}
/** `data` is one chunk, or a list of `{ chunk }` when several wait. */
methods._writeGeneric = function (this: net.Socket, ...given: readonly unknown[]) {
  const [isList, data] = given
  if (isList !== true) record(this, 'out', data)
  else
    for (const part of data as readonly unknown[])
      record(this, 'out', (part as { chunk?: unknown }).chunk ?? part)
  return write.apply(this, given)
}

// biome-ignore lint/suspicious/noExplicitAny: one method for all events, with any arguments.
const server = net.Server.prototype as any
const { emit } = server
server.emit = function (this: net.Server, name: string, ...given: readonly unknown[]) {
  const [socket] = given
  if (name === 'connection' && socket instanceof net.Socket) {
    nameSocket(socket, 'accepted')
    // Otherwise the HTTP parser would read the socket below JavaScript.
    const { _handle: handle } = socket as unknown as { readonly _handle: object | null }
    if (handle !== null) Object.assign(handle, { _consumed: true })
  }
  return emit.call(this, name, ...given)
}
