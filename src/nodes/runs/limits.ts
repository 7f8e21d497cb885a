import {
  FRAME_BYTES_MAX,
  IMAGE_FRAME_BYTES_MAX,
  LARGE_FRAME_BYTES_MAX,
} from '../protocol/frames.ts'

/**
 * Every bound and time of the nodes' side. Times are milliseconds, sizes are bytes, unless the name
 * says otherwise.
 */
export type NodeLimits = {
  /**
   * Connected nodes. Beyond it: close 1013, which makes clients back off. About 15 KB of memory
   * each.
   */
  readonly connectionsMax: number
  /** Handshakes under way, whose nodes are not known yet. Beyond it: 503. */
  readonly handshakesMax: number
  /** Time for the registry's answers during a handshake; then the socket is destroyed. */
  readonly handshakeTimeoutMs: number
  /**
   * When a node dials again, its old connection must answer a ping within this time. Otherwise the
   * new connection replaces it.
   */
  readonly takeoverMs: number
  /** Time for the node to finish a closing handshake; then the socket is destroyed. */
  readonly closeTimeoutMs: number
  /**
   * One frame from a node; a larger one is close 1009. A chunk has some hundred bytes, with
   * logprobs some thousand.
   */
  readonly frameBytesMax: number
  /**
   * One frame from a DIFFUSION node that answers; ten images of 1,024 pixels. When nothing was
   * asked, the bound is `frameBytesMax`.
   */
  readonly imageFrameBytesMax: number
  /**
   * Answers with images that are under way, of all nodes together; beyond it, calls for images are
   * refused.
   */
  readonly imageBytesMax: number
  /**
   * One frame to a node. The public client takes 1 MiB; beyond it, it closes with 1009 and loses
   * all its runs.
   */
  readonly requestBytesMax: number
  /**
   * One frame to a node that announced `large-frames`: a body of 10 MiB with pictures, and what
   * serialising it again may add.
   */
  readonly largeRequestBytesMax: number
  /**
   * What may wait in memory until one node reads it, besides one large frame; beyond it the node
   * counts as lost.
   */
  readonly sendBytesMax: number
  /**
   * A frame that was not asked for costs 1, and 1 more per KiB. A node may spend this much at once…
   */
  readonly strayBurst: number
  /** …and this much per second. Then it is closed with 1008. */
  readonly strayPerSecond: number

  /** Runs at once on one node. */
  readonly slots: number
  /** Runs at once on a node with more vram than `largeVramMb`. */
  readonly slotsLarge: number
  readonly largeVramMb: number

  /**
   * Time until the first token, per attempt: prompts are long and contributed machines are slow.
   */
  readonly firstTokenMs: number
  /** Time between two chunks that contain text or end a choice. */
  readonly tokenMs: number
  /** Time after every choice has finished, for the usage that some backends never send. */
  readonly finishGraceMs: number
  /** Time of the whole run. 4,096 tokens at 5 per second are 14 minutes. */
  readonly runMs: number
  /**
   * How long a run keeps its slot after its caller left, or after it timed out, while the node
   * still streams.
   */
  readonly drainMs: number
  /** What may wait for a slow caller, per run. */
  readonly queueBytesMax: number
  /**
   * All frames of one run together. A larger answer ends its own run only: the caller chooses how
   * large an answer gets.
   */
  readonly answerBytesMax: number
  /**
   * What a node may send for a run after the cancel frame: its buffers and the network's may hold
   * that much. A node that sends more is closed with 1008.
   */
  readonly lateBytesMax: number
  /**
   * The same for a node that did not announce `cancel`: `answerBytesMax`, and this much for each
   * second since the run ended. 128 choices with 20 logprobs each come near it.
   */
  readonly lateBytesPerSecond: number
  /**
   * Time until the images are there, per attempt: ten large ones take a contributed machine a
   * minute or more.
   */
  readonly imageMs: number
  /** Depth of a chunk, itself included: serialising it again is recursive. */
  readonly chunkDepthMax: number

  /** Attempts on other nodes before the first token. */
  readonly retriesMax: number
  /** Callers that may wait for one model. */
  readonly waitersMax: number
  /** How long each waits. */
  readonly waitMs: number

  /** Failures in a row that set a node aside. */
  readonly failuresMax: number
  /** How long it is set aside at first; doubled with every probe that fails, up to `asideMaxMs`. */
  readonly asideMs: number
  readonly asideMaxMs: number
  /**
   * How many errors in a row, without an answer in between, a node may report for callers' requests
   * before it is probed. The requests may have caused them; a probe is our own request.
   */
  readonly refusalsMax: number

  /**
   * The benchmark that a node must have stored to connect, and the speed below which it is
   * degraded; tokens per second.
   */
  readonly tokensPerSecondMin: number
  /** Time until the first token of a probe; later is too slow. */
  readonly probeFirstTokenMs: number
  /** Time for a probe's small image; later is too slow. */
  readonly probeImageMs: number
  /** Time between probes of a RUNNING node that served no call in between. */
  readonly probeIntervalMs: number
  /** Time between probes of a node that is being verified or is degraded. */
  readonly probeRetryMs: number
  /** Probes under way at once. */
  readonly probesMax: number

  /**
   * The protocol's ping: how often it is sent, how long the node has to answer, and how many
   * unanswered pings in a row close the connection.
   */
  readonly pingMs: number
  readonly pingTimeoutMs: number
  readonly pingMissesMax: number
  /** A connection that was silent this long gets a WebSocket ping, which its library answers… */
  readonly silenceMs: number
  /** …within this time, or it is half-open and destroyed. */
  readonly silenceTimeoutMs: number
  readonly healthMs: number
  /**
   * Age at which an idle node is asked to dial again, so that load balancers can spread the nodes
   * again.
   */
  readonly reconnectMs: number
  /**
   * How often it is stored that connected nodes are still there: their uptime until then survives a
   * kill.
   */
  readonly seenMs: number
  /**
   * How often to search for nodes whose gateway is dead: they are shown as connected this much
   * longer than the gateway's lease.
   */
  readonly abandonedMs: number
  /**
   * How often the keys of connected nodes are checked: with KEY_AGE_MAX_MS, a revoked key ends its
   * connections within a second.
   */
  readonly keyCheckMs: number
  /** How often the registration of a connected node is read again. */
  readonly recheckMs: number

  /** Interval of the one timer: deadlines of runs and waiters are exact to this. */
  readonly tickMs: number
  /** How often every connection sends what is due. */
  readonly tendMs: number
  /**
   * How many served runs are kept while the database is away; beyond it the oldest are dropped, and
   * that is logged.
   */
  readonly inferencesMax: number
}

/**
 * The defaults. Ping and slot figures are those of the deployed service; the reasons for the others
 * are above.
 */
export const NODE_LIMITS: NodeLimits = {
  connectionsMax: 20_000,
  handshakesMax: 256,
  handshakeTimeoutMs: 10_000,
  takeoverMs: 2_000,
  closeTimeoutMs: 5_000,
  frameBytesMax: FRAME_BYTES_MAX,
  imageFrameBytesMax: IMAGE_FRAME_BYTES_MAX,
  imageBytesMax: 512 * 1024 * 1024,
  requestBytesMax: FRAME_BYTES_MAX,
  largeRequestBytesMax: LARGE_FRAME_BYTES_MAX,
  sendBytesMax: 8 * 1024 * 1024,
  strayBurst: 2_000,
  strayPerSecond: 200,

  slots: 10,
  slotsLarge: 20,
  largeVramMb: 80_000,

  firstTokenMs: 30_000,
  tokenMs: 30_000,
  finishGraceMs: 2_000,
  runMs: 30 * 60_000,
  drainMs: 60_000,
  queueBytesMax: 4 * 1024 * 1024,
  answerBytesMax: 64 * 1024 * 1024,
  lateBytesMax: 16 * 1024 * 1024,
  lateBytesPerSecond: 8 * 1024 * 1024,
  imageMs: 120_000,
  chunkDepthMax: 32,

  retriesMax: 2,
  waitersMax: 256,
  waitMs: 5_000,

  failuresMax: 3,
  asideMs: 10_000,
  asideMaxMs: 300_000,
  refusalsMax: 5,

  tokensPerSecondMin: 1,
  probeFirstTokenMs: 20_000,
  probeImageMs: 60_000,
  probeIntervalMs: 600_000,
  probeRetryMs: 60_000,
  probesMax: 64,

  pingMs: 600_000,
  pingTimeoutMs: 10_000,
  pingMissesMax: 3,
  silenceMs: 30_000,
  silenceTimeoutMs: 20_000,
  healthMs: 600_000,
  reconnectMs: 24 * 60 * 60_000,
  seenMs: 60_000,
  abandonedMs: 2_000,
  keyCheckMs: 400,
  recheckMs: 600_000,

  tickMs: 100,
  tendMs: 1_000,
  inferencesMax: 10_000,
}
