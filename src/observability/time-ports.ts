import type { AppDependencies, AppNodes } from '../start/app-routes.ts'
import { noteInference, timed } from './call-scope.ts'
import { factsOfRecord } from './record-facts.ts'

/** The parts of the app, whose work for a call is noted as a phase of it. Nothing else about them changes. */
export function timePorts(dependencies: AppDependencies): AppDependencies {
  const { enclaves, committer, keys, now } = dependencies
  return {
    ...dependencies,
    keys: { ...keys, authenticate: timed({ phase: 'authenticate', now }, (key) => keys.authenticate(key)) },
    enclaves: {
      find: (notary) => enclaves.find(notary),
      document: () => enclaves.document(),
      notaries: () => enclaves.notaries(),
      identities: () => enclaves.identities(),
      complete: timed({ phase: 'enclave', now }, (...call) => enclaves.complete(...call)),
    },
    committer: {
      status: () => committer.status(),
      waitFor: timed({ phase: 'commit', now }, async (...leaf) => {
        const record = await committer.waitFor(...leaf)
        noteInference(() => factsOfRecord(record))
        return record
      }),
    },
    nodes: timeNodes(dependencies.nodes, now),
  }
}

function timeNodes(nodes: AppNodes, now: () => number): AppNodes {
  const { dispatcher } = nodes
  return {
    handleUpgrade: (request, socket, head) => nodes.handleUpgrade(request, socket, head),
    disconnect: (nodeId, reason) => nodes.disconnect(nodeId, reason),
    stop: () => nodes.stop(),
    dispatcher: {
      dispatch: timed({ phase: 'node', now }, (call) => dispatcher.dispatch(call)),
      models: () => dispatcher.models(),
    },
  }
}
