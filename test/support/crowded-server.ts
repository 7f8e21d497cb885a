import { createHttpServer } from '#src/api/server.ts'
import { countDescriptors } from '#src/runtime/descriptors.ts'

/**
 * A server in a separate process. It reports its address; at each message it reports how many
 * connections and descriptors it has.
 */
const connectionsMax = process.argv[2]
const server = createHttpServer(
  (_, response) => response.end('here'),
  connectionsMax === undefined ? {} : { connectionsMax: Number(connectionsMax) },
)
server.listen(0, '127.0.0.1', () => process.send?.(server.address() ?? {}))
process.on('message', async () =>
  process.send?.({ ...(await server.load()), descriptors: countDescriptors() }),
)
