import { useState } from 'preact/hooks'
import { encodeHex } from '#attestation/bytes.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import type { AttestationDocument } from '#attestation/nitro/document.ts'
import { CheckList } from '../kit/check-list.tsx'
import { Busy, FaultNotice, State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Hex, Time } from '../kit/values.tsx'
import {
  configurationDigestOf,
  type DescribedLog,
  readFreshDocument,
  type ServedEnclave,
} from './answers.ts'
import { checkEnclaveDocument, type EnclaveReport } from './check-enclave.ts'

/** The enclave that holds the notary's key, as its attestation document describes it. */
export function EnclavePanel({
  log,
  enclave,
  policy,
}: {
  readonly log: DescribedLog
  /** Null if the gateway does not use the enclave: it may still run. */
  readonly enclave: ServedEnclave | null
  readonly policy: BundlePolicy
}) {
  return (
    <section aria-labelledby="enclave">
      <h2 id="enclave">Enclave</h2>
      {enclave === null ? (
        <p>
          <State tone="open">not in use</State> This gateway does not use the enclave of this log
          now: it is drained, out of reach or refused, or it has ended. When an enclave ends, its
          key is lost, and its log cannot grow.
          {log.attestation_sha256 !== null && (
            <>
              {' '}
              The enclave's last document is in the evidence of each record (SHA-256{' '}
              <Hex value={log.attestation_sha256} />
              ).
            </>
          )}
        </p>
      ) : (
        <>
          <p>
            {enclave.status === 'in_use' ? (
              <>
                <State tone="good">in use</State> The enclave takes calls now.
              </>
            ) : (
              <>
                <State tone="warn">draining</State> The enclave finishes its calls, and takes no new
                calls.
              </>
            )}{' '}
            The facts below come from its attestation document. This page checks the document.
          </p>
          <DocumentReport log={log} enclave={enclave} policy={policy} />
        </>
      )}
    </section>
  )
}

type Given = { readonly document: string; readonly nonce: Uint8Array | null }

function DocumentReport({
  log,
  enclave,
  policy,
}: {
  readonly log: DescribedLog
  readonly enclave: ServedEnclave
  readonly policy: BundlePolicy
}) {
  const [given, setGiven] = useState<Given>({ document: enclave.attestation, nonce: null })
  const [fault, setFault] = useState<unknown>(null)
  const [isAsking, setIsAsking] = useState(false)
  const { value } = useLoaded(
    async () => checkEnclaveDocument(log, { ...given, at: new Date(), policy }),
    [configurationDigestOf(log), given, policy],
  )
  const askFresh = async () => {
    setIsAsking(true)
    setFault(null)
    const nonce = crypto.getRandomValues(new Uint8Array(32))
    try {
      const signal = AbortSignal.timeout(30_000)
      const document = await readFreshDocument(log.notary, { nonce: encodeHex(nonce), signal })
      setGiven({ document, nonce })
    } catch (failed) {
      setFault(failed)
    }
    setIsAsking(false)
  }
  return (
    <>
      {value === null ? <Busy what="Checking the document" /> : <Report report={value} />}
      <p class="row">
        <button type="button" disabled={isAsking} onClick={() => void askFresh()}>
          Ask it for a new document
        </button>
        <span class="faint">
          {given.nonce === null
            ? 'The document will contain a random number from this page, so only the enclave itself can make it, and only now.'
            : 'New: the document contains the random number of this page.'}
        </span>
      </p>
      {isAsking && <Busy what="Asking the enclave" />}
      {fault !== null && <FaultNotice fault={fault} />}
    </>
  )
}

function Report({ report: { checks, document } }: { readonly report: EnclaveReport }) {
  return (
    <>
      <CheckList checks={checks} />
      {document !== null && <Measurements document={document} />}
    </>
  )
}

/** The reader can trust these measurements only if the checks above them passed. */
function Measurements({ document }: { readonly document: AttestationDocument }) {
  const shown = [...document.pcrs].filter(([, value]) => value.some((byte) => byte !== 0))
  return (
    <dl class="facts">
      <div>
        <dt>Instance</dt>
        <dd>
          <OutsideText text={document.moduleId} isOneLine={true} shownMax={100} />
        </dd>
      </div>
      <div>
        <dt>Document made</dt>
        <dd>
          <Time ms={document.timestampMs} />
        </dd>
      </div>
      {shown.map(([index, value]) => (
        <div key={index}>
          <dt>
            {MEANINGS[index] === undefined ? `PCR${index}` : `PCR${index}: ${MEANINGS[index]}`}
          </dt>
          <dd>
            <Hex value={encodeHex(value)} digits={16} />
          </dd>
        </div>
      ))}
    </dl>
  )
}

/** What each register measures, as AWS defines it. */
const MEANINGS: Readonly<Record<number, string>> = {
  0: 'the whole image',
  1: 'kernel and boot',
  2: 'the application',
  3: 'role of the host',
  4: 'instance',
  8: 'signer of the image',
}
