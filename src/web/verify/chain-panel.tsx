import { TextField } from './fields.tsx'

type Chain = { readonly rpc: string; readonly confirmations: string; readonly explorer: string }

/** No chain is called before the reader presses the button. */
export function ChainPanel({
  given,
  onChange,
  onAsk,
}: {
  readonly given: Chain
  readonly onChange: (part: Partial<Chain>) => void
  readonly onAsk: (() => void) | null
}) {
  const isUrl = isHttpUrl(given.rpc.trim())
  const explorer = given.explorer.trim()
  return (
    <details class="panel">
      <summary>The chain: which endpoint to ask about the block</summary>
      <p>
        Only an endpoint of the chain can confirm that the block is on the chain. Name an endpoint
        that you trust: your own node, or the node of a provider. It sees your address and the
        number of the block, and is asked only when you press the button.
      </p>
      <TextField
        label="JSON-RPC endpoint"
        hint="https://…, or http:// on this machine"
        inputMode="url"
        value={given.rpc}
        onValue={(rpc) => onChange({ rpc })}
      />
      <TextField
        label="Confirmations"
        hint="How many blocks deep the block must be, counted with itself. Empty: 1; Ethereum calls 64 final."
        inputMode="numeric"
        value={given.confirmations}
        onValue={(confirmations) => onChange({ confirmations })}
      />
      <p>
        <button type="button" disabled={!isUrl || onAsk === null} onClick={() => onAsk?.()}>
          Ask the chain
        </button>{' '}
        {given.rpc.trim() !== '' && !isUrl && <span>The endpoint is not an http(s) URL.</span>}
        {isUrl && onAsk === null && <span>Choose the evidence first.</span>}
      </p>
      <TextField
        label="Block explorer"
        hint="Its address, such as https://explorer.example. Then the report has a link to the block"
        inputMode="url"
        value={given.explorer}
        onValue={(text) => onChange({ explorer: text })}
      />
      {explorer !== '' && explorerOf(explorer) === '' && <p>The explorer is not an http(s) URL.</p>}
    </details>
  )
}

function isHttpUrl(text: string): boolean {
  return URL.canParse(text) && ['http:', 'https:'].includes(new URL(text).protocol)
}

/** The base URL without a slash at the end. Empty when the text is not a valid URL. */
export function explorerOf(text: string): string {
  const trimmed = text.trim()
  return isHttpUrl(trimmed) ? new URL(trimmed).href.replace(/\/+$/, '') : ''
}
