import { connect, Socket } from 'node:net'

/**
 * This program runs separately: `node relay.ts PORT` or `node relay.ts SOCKET`, with a socket as
 * its standard input. qemu starts one relay for each connection of the guest, so the guest reaches
 * only this port or socket.
 */
const guest = new Socket({ fd: 0, readable: true, writable: true, allowHalfOpen: true })
const [target = ''] = process.argv.slice(2)
const address = /^\d+$/.test(target)
  ? { host: '127.0.0.1', port: Number(target) }
  : { path: target }
const host = connect({ ...address, allowHalfOpen: true })
for (const socket of [guest, host]) socket.on('error', () => process.exit(1))
guest.pipe(host)
host.pipe(guest)
