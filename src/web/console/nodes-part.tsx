import { useRef, useState } from 'preact/hooks'
import type { NodeListReply } from '../../nodes/protocol/registration.ts'
import { Busy, FaultNotice, State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { CopyButton, Count } from '../kit/values.tsx'
import { ConfirmButton } from './confirm-button.tsx'
import { lengthOf, type Node, NodeDetails, speedLabel } from './node-details.tsx'
import { useSession } from './session.ts'
import { type Column, Table } from './table.tsx'
import { ActionState, useAction } from './use-action.tsx'

const NODES_PATH = '/v1/dashboard/nodes'
const NODE_PATH = '/v1/dashboard/node'
/** The list changes by itself, so it is read repeatedly. */
const EVERY_MS = 3_000

export function NodesPart() {
  const session = useSession()
  const [isArchiveShown, setIsArchiveShown] = useState(false)
  const [chosen, setChosen] = useState<string | null>(null)
  const { value, fault, reload } = useLoaded(
    (signal) => session.ask<NodeListReply>(NODES_PATH, { signal }),
    [session],
    { everyMs: EVERY_MS },
  )
  const all = value?.nodes.toReversed() ?? []
  const nodes = all.filter((node) => isArchiveShown || !node.is_archived)
  const archived = all.filter((node) => node.is_archived).length
  const running = all.filter(({ status }) => status === 'Running').length
  const opened = all.find((node) => node.node_id === chosen)
  return (
    <>
      <h1 tabIndex={-1}>Nodes</h1>
      <p>
        Your own machines that answer plain chats and make images, without evidence.{' '}
        <span role="status">
          {value !== null && `${running} of ${all.length - archived} running.`}
        </span>
      </p>
      <StartNode onMade={reload} />
      <h2>Existing nodes</h2>
      {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
      {value === null && fault === null && <Busy what="Asking for the nodes…" />}
      <Table
        label="Nodes"
        columns={columnsOf({ chosen, onChosen: setChosen, reload })}
        rows={value === null ? null : nodes}
        keyOf={({ node_id: id }) => id}
        currentKey={chosen}
        empty="There are no nodes yet. Start a node above."
      />
      {archived > 0 && (
        <label class="choice">
          <input
            type="checkbox"
            checked={isArchiveShown}
            onChange={({ currentTarget }) => setIsArchiveShown(currentTarget.checked)}
          />{' '}
          Show archived nodes ({archived})
        </label>
      )}
      {opened !== undefined && <NodeDetails key={opened.node_id} node={opened} />}
    </>
  )
}

function columnsOf({
  chosen,
  onChosen,
  reload,
}: {
  readonly chosen: string | null
  readonly onChosen: (nodeId: string | null) => void
  readonly reload: () => void
}): readonly Column<Node>[] {
  return [
    {
      title: 'Name',
      kind: 'name',
      cell: ({ name_alias: name, node_id: id }) => (
        <>
          <OutsideText text={name} isOneLine={true} shownMax={100} /> <span class="hex">{id}</span>
        </>
      ),
    },
    {
      title: 'State',
      isSteady: true,
      cell: ({ is_archived: isArchived, status }) =>
        isArchived ? <State tone="open">Archived</State> : <NodeState status={status} />,
    },
    {
      title: 'Speed',
      kind: 'number',
      cell: ({ benchmark_tokens_per_second: speed }) =>
        speed === null ? <span class="faint">not measured</span> : speedLabel(speed),
    },
    {
      title: 'Served today',
      kind: 'number',
      cell: ({ requests_served_day: served }) => <Count value={served} />,
    },
    {
      title: 'Served',
      kind: 'number',
      cell: ({ requests_served: served }) => <Count value={served} />,
    },
    {
      title: 'Up',
      isSteady: true,
      cell: ({ run_duration_seconds: seconds }) => lengthOf(seconds),
    },
    {
      title: 'Actions',
      kind: 'actions',
      cell: (node) => {
        const isOpen = node.node_id === chosen
        return (
          <>
            <button
              type="button"
              class="small"
              aria-expanded={isOpen}
              aria-label={`Details of ${node.node_id}`}
              onClick={() => onChosen(isOpen ? null : node.node_id)}
            >
              Details
            </button>
            <ArchiveButton node={node} reload={reload} />
          </>
        )
      },
    },
  ]
}

function ArchiveButton({ node, reload }: { readonly node: Node; readonly reload: () => void }) {
  const session = useSession()
  const { node_id: id, name_alias: name } = node
  const change = async (isArchived: boolean) => {
    await session.ask(NODE_PATH, { method: 'PUT', body: { node_id: id, is_archived: isArchived } })
    reload()
  }
  if (node.is_archived)
    return (
      <ConfirmButton
        label="Bring back"
        what={id}
        title="Bring this node back?"
        act={() => change(false)}
      >
        <p>Its agent may connect again.</p>
      </ConfirmButton>
    )
  return (
    <ConfirmButton label="Archive" what={id} title="Archive this node?" act={() => change(true)}>
      <p>
        <OutsideText text={name} isOneLine={true} shownMax={100} /> is disconnected, and refused
        until you bring it back. Its past use stays counted.
      </p>
    </ConfirmButton>
  )
}

/** See src/nodes/registry/node-state.ts. */
const STATES: Readonly<Record<string, readonly [Tone, string]>> = {
  Running: ['good', 'Running'],
  'Running - verifying performance': ['warn', 'Being measured'],
  'Running - performance degraded': ['warn', 'Too slow'],
  Stopped: ['open', 'Stopped'],
}

function NodeState({ status }: { readonly status: string }) {
  const [tone, words] = STATES[status] ?? (['open', status] as const)
  return (
    <span title={status}>
      <State tone={tone}>{words}</State>
    </span>
  )
}

function StartNode({ onMade }: { readonly onMade: () => void }) {
  const session = useSession()
  const [nodeId, setNodeId] = useState<string | null>(null)
  const action = useAction()
  const name = useRef<HTMLInputElement>(null)

  const make = async (event: Event) => {
    event.preventDefault()
    await action.run(async () => {
      const made = await session.ask<{ readonly node_id: string }>(NODE_PATH, {
        method: 'POST',
        body: { node_name: name.current?.value ?? '' },
      })
      setNodeId(made.node_id)
      onMade()
    })
  }

  return (
    <details class="card">
      <summary>Start a node</summary>
      <form class="row" onSubmit={(event) => void make(event)}>
        <div class="field">
          <label for="node-name">Name of the new node</label>
          <input
            id="node-name"
            ref={name}
            required
            minlength={3}
            maxlength={40}
            autocomplete="off"
          />
        </div>
        <button type="submit" class="primary" disabled={action.isActing}>
          Create the node
        </button>
      </form>
      <ActionState action={action} what="Creating the node…" />
      <div role="status">
        {nodeId !== null && (
          <p>
            <State tone="good">Created</State> <span class="hex">{nodeId}</span>. Run this on the
            machine that has the models:
          </p>
        )}
      </div>
      {nodeId !== null && <Command text={commandFor(nodeId)} what="the command" />}
      <p class="faint">
        Put a key of this account that is for <code>nodes</code> in place of <code>YOUR_KEY</code>.
        The agent finds vLLM, SGLang, llama.cpp, Ollama and LM Studio at their usual ports;{' '}
        <code>--backend URL</code> names another server. In a checkout,{' '}
        <code>npm run -s affidavit -- node run</code> does the same.
      </p>
    </details>
  )
}

function commandFor(nodeId: string): string {
  return `AFFIDAVIT_API_KEY=YOUR_KEY affidavit-node run --url ${location.origin} --node-id ${nodeId}`
}

function Command({ text, what }: { readonly text: string; readonly what: string }) {
  return (
    <div class="command">
      <pre>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} what={what} />
    </div>
  )
}
