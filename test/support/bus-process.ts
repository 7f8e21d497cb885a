/**
 * A gateway's bus in a separate process, which a test kills or stops: node bus-process.ts URL
 * PREFIX. It prints its id, echoes messages on `echo`, and sends without end on `flood`.
 */
import { randomUUID } from 'node:crypto'
import { startBus } from '#src/bus/bus.ts'
import { createLogger } from '#src/observability/logger.ts'
import { BUS_KEY } from './nats-server.ts'

const [url = '', subjectPrefix = ''] = process.argv.slice(2)
const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
const bus = startBus(
  { servers: [url], credentialsFile: null, caFile: null, subjectPrefix },
  { key: BUS_KEY, makeId: randomUUID, now: Date.now, log },
)
bus.serve('echo', async (channel) => {
  for await (const message of channel.messages) await channel.send(message)
  await channel.end()
})
bus.serve('flood', async (channel) => {
  const message = new Uint8Array(60_000)
  while (!channel.signal.aborted) await channel.send(message)
})
setInterval(() => undefined, 60_000)
console.log(bus.id)
