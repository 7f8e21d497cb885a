// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

interface IAffidavit {
    function verifyAnchored(address notary, bytes32 leafHash, uint64 index, bytes32[] calldata path) external view returns (bool);
}

/// @title AttestedAnswers
/// @notice Stores one answer for each question of the owner. The answer must be a complete completion, the first of its notary
/// for this request. The owner must trust the notary, and the receipt must be under an anchored head of the notary's log.
/// @dev A question is the hash of a request, and an answer is the hash of a response (SHA-256 of canonical JSON). A prediction
/// market can ask before the answer is known, and pay according to the response with the stored hash.
///
/// This contract does NOT prove:
/// - that a notary is an enclave. The owner must check its attestation document before trusting it.
/// - that the answer is true, which weights made it, or that no other notary gave another answer. The first stored answer counts.
/// - that the request was sent only once. `attempt` counts per notary; use a random nonce, so that no other caller has the request.
contract AttestedAnswers {
    /// @notice A receipt (version 2, canonical JSON) and its path to the notary's newest head in the anchor contract.
    /// `outcomeAt`, `hashesAt`: where in the receipt `,"outcome"` and `,"request_hash"` begin.
    struct Evidence { address notary; bytes receipt; uint64 index; bytes32[] path; uint256 outcomeAt; uint256 hashesAt; }

    event Answered(bytes32 indexed requestHash, bytes32 responseHash, address notary, bytes32 leafHash);

    error NotOwner();
    error NotOpen(bytes32 requestHash);
    error NotTrusted(address notary);
    error NotAnchored(bytes32 leafHash);
    error NotInReceipt(string member);

    bytes16 private constant DIGITS = "0123456789abcdef";
    IAffidavit public immutable anchors;
    address public immutable owner = msg.sender;
    mapping(address notary => bool) public isTrusted;
    mapping(bytes32 requestHash => bool) public isOpen;
    mapping(bytes32 requestHash => bytes32 responseHash) public answers;

    modifier onlyOwner() { if (msg.sender != owner) revert NotOwner(); _; }

    constructor(IAffidavit anchorContract) { anchors = anchorContract; }

    function trust(address notary, bool trusted) external onlyOwner { isTrusted[notary] = trusted; }

    function ask(bytes32 requestHash) external onlyOwner { isOpen[requestHash] = answers[requestHash] == 0; }

    /// @notice Keeps `responseHash` as the answer to `requestHash`. Anyone may call it; it cannot be called twice for a question.
    /// @dev The leaf is hashed here, from the receipt's bytes. Quotes within JSON strings are escaped, so `,"name":` occurs in
    /// canonical JSON at a member of that name alone, and a receipt has each of these names once.
    function answer(Evidence calldata e, bytes32 requestHash, bytes32 responseHash) external {
        if (!isOpen[requestHash]) revert NotOpen(requestHash);
        if (!isTrusted[e.notary]) revert NotTrusted(e.notary);
        bytes32 leafHash = sha256(abi.encodePacked(bytes1(0x00), e.receipt));
        if (!anchors.verifyAnchored(e.notary, leafHash, e.index, e.path)) revert NotAnchored(leafHash);
        if (!isAt(e.receipt, 0, '{"attempt":1,')) revert NotInReceipt("attempt");
        if (!isAt(e.receipt, e.outcomeAt, ',"outcome":"complete"')) revert NotInReceipt("outcome");
        bytes memory hashes = abi.encodePacked(',"request_hash":"', hexOf(requestHash), '","response_hash":"', hexOf(responseHash), '"');
        if (!isAt(e.receipt, e.hashesAt, hashes)) revert NotInReceipt("hashes");
        (isOpen[requestHash], answers[requestHash]) = (false, responseHash);
        emit Answered(requestHash, responseHash, e.notary, leafHash);
    }

    function isAt(bytes calldata text, uint256 offset, bytes memory part) private pure returns (bool) {
        if (offset > text.length || part.length > text.length - offset) return false;
        return keccak256(text[offset:offset + part.length]) == keccak256(part);
    }

    function hexOf(bytes32 value) private pure returns (bytes memory text) {
        text = new bytes(64);
        for (uint256 i = 0; i < 64; i++) text[i] = DIGITS[(uint256(value) >> (252 - 4 * i)) & 15];
    }
}
