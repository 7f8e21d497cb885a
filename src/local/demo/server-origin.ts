import type { Server as HttpServer } from 'node:http'
import { Server } from 'node:https'

export function serverOrigin(server: HttpServer | Server): string {
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('expected a TCP address')
  const scheme = server instanceof Server ? 'https' : 'http'
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address
  return `${scheme}://${host}:${address.port}`
}
